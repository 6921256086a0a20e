/* What never changes: the head of the page, its foot, and the choices of the head map. */
const Facts = (function () {
  const { header, runs } = Data;
  const byId = (id) => document.getElementById(id);
  const LISTED = 3;            // modules named for each reason

  function model(run) {
    const { model: facts } = run.header;
    const most = MapLayout.of(run).alike ? "" : "up to ";
    const shared = facts.num_heads === facts.num_kv_heads ? Words.count(facts.num_heads, "head")
      : Words.count(facts.num_heads, "query head") + " on " + Words.count(facts.num_kv_heads, "KV head");
    const { layers } = run.header;
    const some = layers.length < facts.layers ? layers.length + " of " : "";
    const parts = [
      facts.family, some + Words.count(facts.layers, "layer"), most + shared + " a layer", "head_dim " + facts.head_dim,
      Words.attention(run),
    ];
    if (facts.causal && facts.kv_bytes_per_token) parts.push(Words.count(facts.kv_bytes_per_token, "byte") + " of KV cache a token");
    run.part("facts").textContent = (runs.length > 1 ? [run.name, ...parts] : parts).join(" · ");
  }

  /* What mixes tokens, or may, and has no map here: by the reason why not. */
  function unseen(run) {
    const { unseen: modules } = run.header;
    const reasons = [...new Set(modules.map((module) => module.reason))].map((reason) => {
      const names = modules.filter((module) => module.reason === reason).map(({ name }) => Words.path(name));
      const more = names.length - LISTED;
      return Words.list([...names.slice(0, LISTED), ...(more > 0 ? [more + " more"] : [])]) + " (" + Words.path(reason) + ")";
    });
    run.part("unseen").hidden = !modules.length;
    run.part("unseen").textContent = Words.count(modules.length, "module") + " not recorded: " + reasons.join("; ");
  }

  function nextTokens(run) {
    run.part("next-tokens").hidden = !run.header.next_tokens.length;
    run.part("next-list").append(...run.header.next_tokens.map(({ token, probability }) => {
      const item = Words.element("li");
      const track = Words.element("span", "track");
      const fill = Words.element("span", "fill");
      fill.style.width = 100 * probability + "%";
      track.append(fill);
      const piece = Words.label({ text: token, kind: "text" });
      item.append(Words.element("span", "piece", piece), track, Words.element("span", "number", Words.digits(probability)));
      return item;
    }));
  }

  function ran(run) {
    const difference = run.header.max_logit_difference;
    const held = difference === null ? "not compared with the reference attention" : "largest difference of a logit from "
      + run.header.reference + " attention, on a probe, " + (difference === 0 ? "none" : difference.toExponential(2));
    return [
      ...(runs.length > 1 ? [run.name] : []), header.program.name + " " + header.program.version, run.header.model.name,
      ...(run.header.part ? [Words.attention(run)] : []), Words.size(run), held,
    ].join(" · ");
  }

  /* Which numbers are exact, which are in 8 bits, and which are not in the file. */
  function carried(run) {
    const { layers, next_tokens: next, exact, exact_rows: asked, keys } = run.header;
    const tiles = layers.filter((layer) => layer.tile).length;
    const rows = layers.filter((layer) => layer.exact_rows).length;
    const weights = tiles === layers.length ? "every weight is carried"
      : tiles ? "every weight of " + Words.count(tiles, "layer") + " is carried, elsewhere " + Words.kept(keys)
        : Words.kept(keys) + " are carried";
    const known = ["statistics", ...(exact ? ["weights"] : []), ...(next.length ? ["next-token probabilities"] : [])];
    if (rows) known.push("the weights of " + Words.count(asked.length, "row") + (rows < layers.length ? " of " + Words.count(rows, "layer") : ""));
    const sizes = [...new Set(layers.map((layer) => layer.map_rows + " × " + layer.map_columns))];
    const small = MapInk.whole(run) ? " Small maps are not pooled." : " Small maps are pooled to " + Words.list(sizes) + " cells.";
    const coded = exact ? "In 8 bits: small maps." : "In 8 bits: weights (as their square root, so to within 0.004); " + weights + ".";
    return "Exact: " + Words.list(known) + ". " + coded + small;
  }

  function choices() {
    const option = (value, text) => { const made = Words.element("option", "", text); made.value = value; return made; };
    const named = Data.measures.map(({ key, label }) => [key, label]);
    byId("show").append(option("maps", "maps"), ...named.map(([key, label]) => option(key, label)));
    byId("order").append(option("layer", "by layer"), ...named.map(([key, label]) => option(key, "by " + label)));
    byId("show").addEventListener("change", (event) => State.pin({ show: event.target.value }));
    byId("order").addEventListener("change", (event) => State.pin({ order: event.target.value }));
    byId("discount").addEventListener("change", (event) => State.pin({ discount: event.target.checked }));
    for (const radio of document.querySelectorAll('[name="direction"]')) {
      radio.addEventListener("change", () => State.pin({ direction: radio.value }));
    }
  }

  function title() {
    if (runs.length < 2) return header.model.name;
    const [first, second] = runs.map((run) => run.header.model.name);
    return first === second ? first + ", two texts" : first + " against " + second;
  }

  /* "10 tokens", "8 and 10 tokens" */
  function counts(of, word) {
    const numbers = [...new Set(runs.map(of))];
    return numbers.length === 1 ? Words.count(numbers[0], word) : Words.list(numbers.map((one) => one.toLocaleString("en-US"))) + " " + word + "s";
  }

  function write() {
    byId("model-name").textContent = title();
    byId("text-heading").textContent = runs.some((run) => run.crossed || run.grid) ? runs.map(Words.size).join(" · ")
      : counts((run) => run.header.seq_len, "token");
    byId("map-heading").textContent = counts((run) => run.header.heads.length, "head");
    byId("map-open").setAttribute("aria-label", "open this head");
    for (const run of runs) {
      model(run);
      unseen(run);
      nextTokens(run);
      run.part("text-name").textContent = run.name;
      run.part("text-name").hidden = runs.length < 2;
      run.part("run-line").textContent = ran(run);
      run.part("exact-line").textContent = carried(run);
    }
    byId("caveats").textContent = header.caveats;
    choices();
  }

  return { write };
})();
