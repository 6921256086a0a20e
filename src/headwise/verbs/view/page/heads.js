/* The weights of one head as the page knows them: all of them where the layer is carried in full, otherwise
   the largest keys of each row. A code c of 0..255 stands for the weight (c / 255)^2. */
const Heads = (function () {
  const WEIGHT = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
  const LEAST_LEFT = 0.001;   // of a row; enlarging less would show the coarseness of 8 bits as a pattern
  const FINE_MAP = 256;       // cells a side from which a pooled map shows more than the largest keys do
  const loaded = new Map();   // run and layer -> its blocks
  const made = new Map();     // run, layer and head -> HeadWeights

  class HeadWeights {
    constructor(run, layer, head, blocks) {
      const info = run.layer(layer);
      this.rows = run.queries.length;
      this.columns = run.keys.length;
      this.crossed = run.crossed;
      this.full = blocks.weights !== null;
      this.exact = blocks.weights instanceof Float32Array;
      this.choice = run.header.keys;
      const part = (values, size) => (values ? values.subarray(head * size, (head + 1) * size) : null);
      this.tile = part(blocks.weights, this.rows * this.columns);
      this.starts = blocks.starts && blocks.starts.subarray(head * this.rows, (head + 1) * this.rows + 1);
      this.keys = blocks.topKeys;
      this.top = blocks.topWeights;
      this.sinks = part(blocks.sink, this.rows);
      this.asked = new Map(blocks.exact ? run.header.exact_rows.map((row, i) => [row, i]) : []);
      this.askedWeights = part(blocks.exact, run.header.exact_rows.length * this.columns);
      this.map = blocks.map && { codes: part(blocks.map, info.map_rows * info.map_columns), rows: info.map_rows, columns: info.map_columns };
      this.statistics = new Map(Object.entries(blocks.rows).map(([key, values]) => [key, part(values, this.rows)]));
      this.first = this.firstVisible();
      this.factors = this.withoutFirst();
    }

    /* The first token that sees anything: tokens before it are padding. Of another text it is the first one. */
    firstVisible() {
      if (this.crossed) return 0;
      for (let row = 0; row < this.rows; row++) {
        let seen = false;
        this.eachInRow(row, () => { seen = true; });
        if (seen) return row;
      }
      return 0;
    }

    /* Whether every weight of a row is known, and whether as it was computed. */
    complete(row) { return this.full || this.asked.has(row); }

    isExact(row) { return this.exact || this.asked.has(row); }

    /* Visits the weights above 0 of one row that are known, in the order of the text. */
    eachInRow(row, visit) {
      if (this.asked.has(row) || this.exact) {
        const values = this.exact ? this.tile : this.askedWeights;
        const start = (this.exact ? row : this.asked.get(row)) * this.columns;
        for (let key = 0; key < this.columns; key++) if (values[start + key] > 0) visit(key, values[start + key]);
      } else if (this.full) {
        const start = row * this.columns;
        for (let key = 0; key < this.columns; key++) if (this.tile[start + key]) visit(key, WEIGHT[this.tile[start + key]]);
      } else {
        for (let i = this.starts[row]; i < this.starts[row + 1]; i++) visit(this.keys[i], WEIGHT[this.top[i]]);
      }
    }

    /* Per row the factor that makes the other keys sum to what all keys summed to; 0 where too little is left.
       A learned sink keeps its share. */
    withoutFirst() {
      const factors = new Float32Array(this.rows);
      this.left = new Float32Array(this.rows);
      const exact = this.statistics.get("first_token");
      for (let row = 0; row < this.rows; row++) {
        let first = 0;
        let others = 0;
        this.eachInRow(row, (key, weight) => {
          if (key === this.first) first = weight;
          else others += weight;
        });
        const shared = 1 - this.sink(row);
        if (exact && Number.isFinite(exact[row])) first = exact[row];
        const left = this.complete(row) ? others : shared - first;
        this.left[row] = left;
        factors[row] = others > 0 && left >= LEAST_LEFT ? shared / left : 0;
      }
      return factors;
    }

    sink(row) { return this.sinks ? WEIGHT[this.sinks[row]] : 0; }

    adjusted(row, key, weight, discount) {
      if (!discount) return weight;
      return key === this.first ? 0 : Math.min(1, weight * this.factors[row]);
    }

    /* What token `row` looks at: [{token, weight, exact}], weights above 0, in the order of the text. */
    from(row, discount) {
      const seen = [];
      const exact = this.isExact(row);
      this.eachInRow(row, (key, carried) => {
        const weight = this.adjusted(row, key, carried, discount);
        if (weight > 0) seen.push({ token: key, weight, exact });
      });
      return seen;
    }

    /* Who looks at token `key`. */
    to(key, discount) {
      const seen = [];
      for (let row = 0; row < this.rows; row++) {
        const weight = this.adjusted(row, key, this.carried(row, key), discount);
        if (weight > 0) seen.push({ token: row, weight, exact: this.isExact(row) });
      }
      return seen;
    }

    /* One weight, 0 where it is not known. */
    carried(row, key) {
      if (this.exact) return this.tile[row * this.columns + key];
      if (this.asked.has(row)) return this.askedWeights[this.asked.get(row) * this.columns + key];
      if (this.full) return WEIGHT[this.tile[row * this.columns + key]];
      for (let i = this.starts[row]; i < this.starts[row + 1]; i++) if (this.keys[i] === key) return WEIGHT[this.top[i]];
      return 0;
    }

    links(token, direction, discount) {
      return direction === "from" ? this.from(token, discount) : this.to(token, discount);
    }

    /* Whether the matrix is drawn from a map with cells of several tokens, since too few weights are known. */
    pooled(discount) { return Boolean(this.map) && !discount; }

    /* The whole matrix as steps of ink, at most `down` x `across`; where it is larger, the largest weight of a
       cell is shown. */
    steps(down, across, discount) {
      if (this.pooled(discount)) return MapInk.fitted(this.map, down, across);
      const rows = Math.min(down, this.rows);
      const columns = Math.min(across, this.columns);
      const steps = new Uint8Array(rows * columns);
      const place = Uint32Array.from({ length: this.columns }, (_, i) => Math.floor((i * columns) / this.columns));
      for (let row = 0; row < this.rows; row++) {
        const start = Math.floor((row * rows) / this.rows) * columns;
        this.eachInRow(row, (key, carried) => {
          const step = Math.round(255 * Math.sqrt(this.adjusted(row, key, carried, discount)));
          const at = start + place[key];
          if (step > steps[at]) steps[at] = step;
        });
      }
      return { steps, rows, columns };
    }

    /* An exact number of one row, or undefined when the file carries none. */
    statistic(key, row) {
      const values = this.statistics.get(key);
      return values ? values[row] : undefined;
    }
  }

  /* Where each row's entries begin, and after the last one where they end. */
  function startsOf(counts) {
    const starts = new Uint32Array(counts.length + 1);
    for (let i = 0; i < counts.length; i++) starts[i + 1] = starts[i] + counts[i];
    return starts;
  }

  async function loadLayer(run, layer) {
    const info = run.layer(layer);
    const rows = {};
    const wanted = run.header.statistics.map(async ({ key }) => {
      const values = await run.block("rows/" + layer + "/" + key);
      if (values) rows[key] = values;
    });
    const optional = (name, carried) => (carried ? run.block(name + "/" + layer) : null);
    const [weights, counts, topKeys, topWeights, sink, exact, map] = await Promise.all([
      optional("weights", info.tile),
      optional("top_counts", !info.tile),
      optional("top_keys", !info.tile),
      optional("top_weights", !info.tile),
      optional("sink", info.sink),
      optional("exact", info.exact_rows),
      optional("thumbnails", !info.tile && Math.min(info.map_rows, info.map_columns) >= FINE_MAP),
      ...wanted,
    ]);
    return { weights, starts: counts && startsOf(counts), topKeys, topWeights, sink, exact, map, rows };
  }

  /* The head's weights if its layer is unpacked; otherwise null, and `then` is called once it is. */
  function ready(run, layer, head, then) {
    const place = run.index + "." + layer;
    const blocks = loaded.get(place);
    if (!blocks) {
      loaded.set(place, loadLayer(run, layer).then((found) => { loaded.set(place, found); then(); }));
      return null;
    }
    if (blocks instanceof Promise) return null;
    const name = place + "." + head;
    if (!made.has(name)) made.set(name, new HeadWeights(run, layer, head, blocks));
    return made.get(name);
  }

  return { ready, WEIGHT, LEAST_LEFT };
})();
