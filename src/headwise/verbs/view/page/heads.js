/* The weights of one head as the page knows them: all of them where the layer is carried in full, otherwise
   the largest keys of each row. A code c of 0..255 stands for the weight (c / 255)^2. */
const Heads = (function () {
  const WEIGHT = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
  const LEAST_LEFT = 0.001;   // of a row; enlarging less would show the coarseness of 8 bits as a pattern
  const loaded = new Map();   // layer -> its blocks
  const made = new Map();     // "layer.head" -> HeadWeights

  class HeadWeights {
    constructor(layer, head, blocks) {
      const count = Data.header.seq_len;
      this.count = count;
      this.full = blocks.weights !== null;
      this.kept = Data.header.top_k;
      const part = (values, size) => (values ? values.subarray(head * size, (head + 1) * size) : null);
      this.tile = part(blocks.weights, count * count);
      this.keys = part(blocks.topKeys, count * this.kept);
      this.top = part(blocks.topWeights, count * this.kept);
      this.sinks = part(blocks.sink, count);
      this.statistics = new Map(Object.entries(blocks.rows).map(([key, values]) => [key, part(values, count)]));
      this.first = this.firstVisible();
      this.factors = this.withoutFirst();
    }

    /* The first token that sees anything: tokens before it are padding. */
    firstVisible() {
      for (let row = 0; row < this.count; row++) if (this.top[row * this.kept] > 0) return row;
      return 0;
    }

    /* Visits the codes above 0 of one row. */
    eachInRow(row, visit) {
      if (this.full) {
        const start = row * this.count;
        for (let key = 0; key < this.count; key++) if (this.tile[start + key]) visit(key, this.tile[start + key]);
        return;
      }
      for (let i = row * this.kept; i < (row + 1) * this.kept; i++) if (this.top[i]) visit(this.keys[i], this.top[i]);
    }

    /* Per row the factor that makes the other keys sum to what all keys summed to; 0 where too little is left.
       A learned sink keeps its share. */
    withoutFirst() {
      const factors = new Float32Array(this.count);
      this.left = new Float32Array(this.count);
      const exact = this.statistics.get("first_token");
      for (let row = 0; row < this.count; row++) {
        let first = 0;
        let others = 0;
        this.eachInRow(row, (key, code) => {
          if (key === this.first) first = WEIGHT[code];
          else others += WEIGHT[code];
        });
        const shared = 1 - this.sink(row);
        if (exact && Number.isFinite(exact[row])) first = exact[row];
        const left = this.full ? others : shared - first;
        this.left[row] = left;
        factors[row] = others > 0 && left >= LEAST_LEFT ? shared / left : 0;
      }
      return factors;
    }

    sink(row) { return this.sinks ? WEIGHT[this.sinks[row]] : 0; }

    adjusted(row, key, code, discount) {
      if (!discount) return WEIGHT[code];
      return key === this.first ? 0 : Math.min(1, WEIGHT[code] * this.factors[row]);
    }

    /* What token `row` looks at: [{token, weight}], weights above 0, in the order of the text. */
    from(row, discount) {
      const seen = [];
      this.eachInRow(row, (key, code) => {
        const weight = this.adjusted(row, key, code, discount);
        if (weight > 0) seen.push({ token: key, weight });
      });
      return seen.sort((a, b) => a.token - b.token);
    }

    /* Who looks at token `key`. */
    to(key, discount) {
      const seen = [];
      const add = (row, code) => {
        const weight = this.adjusted(row, key, code, discount);
        if (weight > 0) seen.push({ token: row, weight });
      };
      if (this.full) {
        for (let row = 0; row < this.count; row++) add(row, this.tile[row * this.count + key]);
        return seen;
      }
      for (let i = 0; i < this.keys.length; i++) {
        if (this.keys[i] === key && this.top[i]) add(Math.floor(i / this.kept), this.top[i]);
      }
      return seen;
    }

    links(token, direction, discount) {
      return direction === "from" ? this.from(token, discount) : this.to(token, discount);
    }

    /* The whole matrix as steps of ink, at most `size` x `size`; where it is larger, the largest weight of a
       square is shown. */
    steps(size, discount) {
      const shown = Math.min(size, this.count);
      const steps = new Uint8Array(shown * shown);
      const place = Uint32Array.from({ length: this.count }, (_, i) => Math.floor((i * shown) / this.count));
      for (let row = 0; row < this.count; row++) {
        const stretch = discount ? Math.sqrt(this.factors[row]) : 1;
        const start = place[row] * shown;
        this.eachInRow(row, (key, code) => {
          const step = discount ? (key === this.first ? 0 : Math.min(255, code * stretch)) : code;
          const at = start + place[key];
          if (step > steps[at]) steps[at] = step;
        });
      }
      return { steps, shown };
    }

    /* An exact number of one row, or undefined when the file carries none. */
    statistic(key, row) {
      const values = this.statistics.get(key);
      return values ? values[row] : undefined;
    }
  }

  async function loadLayer(layer) {
    const info = Data.layer(layer);
    const rows = {};
    const wanted = Data.header.statistics.map(async ({ key }) => {
      const values = await Data.block("rows/" + layer + "/" + key);
      if (values) rows[key] = values;
    });
    const [weights, topKeys, topWeights, sink] = await Promise.all([
      info.tile ? Data.block("weights/" + layer) : null,
      Data.block("top_keys/" + layer),
      Data.block("top_weights/" + layer),
      info.sink ? Data.block("sink/" + layer) : null,
      ...wanted,
    ]);
    return { weights, topKeys, topWeights, sink, rows };
  }

  /* The head's weights if its layer is unpacked; otherwise null, and `then` is called once it is. */
  function ready(layer, head, then) {
    const blocks = loaded.get(layer);
    if (!blocks) {
      loaded.set(layer, loadLayer(layer).then((found) => { loaded.set(layer, found); then(); }));
      return null;
    }
    if (blocks instanceof Promise) return null;
    const name = layer + "." + head;
    if (!made.has(name)) made.set(name, new HeadWeights(layer, head, blocks));
    return made.get(name);
  }

  return { ready, WEIGHT, LEAST_LEFT };
})();
