/* What the file carries: one JSON header, then blocks that are unpacked when first asked for. A file holds one
   run of a model on a text, or two that are compared; the second one's blocks are named "second/...". */
const Data = (function () {
  const TYPES = { uint8: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, float32: Float32Array };
  const header = JSON.parse(document.getElementById("header").textContent);
  const carriers = new Map();
  for (const carrier of document.querySelectorAll('script[type="application/octet-stream"]')) {
    carriers.set(carrier.dataset.name, carrier);
  }
  const unpacked = new Map();

  function fromBase64(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const coded = atob(text);
    const bytes = new Uint8Array(coded.length);
    for (let i = 0; i < coded.length; i++) bytes[i] = coded.charCodeAt(i);
    return bytes;
  }

  async function inflate(bytes) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  /* Numbers of several bytes travel as planes (all first bytes, all second bytes, ...): gzip likes that better. */
  function joinPlanes(bytes, size) {
    const joined = new Uint8Array(bytes.length);
    const count = bytes.length / size;
    for (let plane = 0; plane < size; plane++) {
      for (let i = 0; i < count; i++) joined[i * size + plane] = bytes[plane * count + i];
    }
    return joined;
  }

  async function unpack(carrier) {
    const Type = TYPES[carrier.dataset.dtype];
    const size = Type.BYTES_PER_ELEMENT;
    const bytes = await inflate(fromBase64(carrier.textContent));
    return new Type((size > 1 ? joinPlanes(bytes, size) : bytes).buffer);
  }

  /* A promise of the block's numbers, or of null when the file does not carry it. */
  function block(name) {
    if (!unpacked.has(name)) {
      const carrier = carriers.get(name);
      unpacked.set(name, carrier ? unpack(carrier) : Promise.resolve(null));
    }
    return unpacked.get(name);
  }

  /* One run: its header, its blocks, its own parts of the document, the tokens that ask and those that are asked. */
  function run(found, index) {
    const layers = new Map(found.layers.map((layer) => [layer.layer, layer]));
    const heads = new Map(found.heads.map((head) => [head.layer + "." + head.head, head]));
    const { image_grid: grid, key_tokens: others } = found;
    const keys = grid ? Patches.named(others ?? found.tokens, grid) : others ?? found.tokens;
    return {
      index,
      header: found,
      measures: [...found.statistics, ...scoresOf(found)],
      name: nameOf(found, index),
      queries: others ? found.tokens : keys,
      keys,
      grid,
      crossed: found.key_tokens !== null,
      suffix: index ? "-second" : "",
      part: (id) => document.getElementById(index ? id + "-second" : id),
      block: (name) => block(index ? "second/" + name : name),
      layer: (number) => layers.get(number),
      head: (layer, head) => heads.get(layer + "." + head),
      groupSize: (layer) => Math.max(1, Math.round(layers.get(layer).num_heads / layers.get(layer).num_kv_heads)),
    };
  }

  /* Scores are shown as the statistics are, but say of what they are: not of the text on show. */
  function scoresOf({ scores }) {
    if (!scores) return [];
    const read = Words.count(scores.num_tokens, "random token") + " twice";
    return scores.statistics.map((score) => ({ ...score, read }));
  }

  /* What tells two runs apart: the model, or else the text. */
  function nameOf(found, index) {
    if (header.against && header.model.name !== header.against.model.name) return found.model.name;
    return (index ? "second" : "first") + " text";
  }

  /* Whether both runs have what `part` tells of a run alike; one run is like itself. */
  const alike = (part) => !header.against || JSON.stringify(part(header)) === JSON.stringify(part(header.against));
  const sameHeads = alike((run) => run.layers.map((layer) => [layer.layer, layer.num_heads, layer.num_kv_heads]));
  const sameTokens = alike((run) => [run.tokens, run.key_tokens ?? []].map((tokens) => tokens.map((token) => token.text)));
  const sameLength = alike((run) => [run.seq_len, run.kv_len, run.layers.map((layer) => [layer.map_rows, layer.map_columns])]);

  const runs = [header, header.against].filter(Boolean).map(run);

  return { header, runs, measures: runs[0].measures, sameHeads, sameTokens, sameLength };
})();
