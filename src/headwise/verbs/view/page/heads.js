/* The weights of one head as the page knows them: all of them where the layer is carried in full, otherwise
   the largest keys of each row. A code c of 0..255 stands for the weight (c / 255)^2. */
const Heads = (function () {
  const WEIGHT = Float32Array.from({ length: 256 }, (_, code) => (code / 255) ** 2);
  const LEAST_LEFT = 0.001;   // of a row; enlarging less would show the coarseness of 8 bits as a pattern
  const loaded = new Map();   // run and layer -> its blocks
  const made = new Map();     // run, layer and head -> HeadWeights

  class HeadWeights {
    constructor(run, head, blocks) {
      this.rows = run.queries.length;
      this.columns = run.keys.length;
      this.full = blocks.weights !== null;
      this.kept = run.header.top_k;
      const part = (values, size) => (values ? values.subarray(head * size, (head + 1) * size) : null);
      this.tile = part(blocks.weights, this.rows * this.columns);
      this.keys = part(blocks.topKeys, this.rows * this.kept);
      this.top = part(blocks.topWeights, this.rows * this.kept);
      this.sinks = part(blocks.sink, this.rows);
      this.statistics = new Map(Object.entries(blocks.rows).map(([key, values]) => [key, part(values, this.rows)]));
      this.first = this.firstVisible();
      this.factors = this.withoutFirst();
    }

    /* The first token that sees anything: tokens before it are padding. */
    firstVisible() {
      for (let row = 0; row < this.rows; row++) if (this.top[row * this.kept] > 0) return row;
      return 0;
    }

    /* Visits the weights above 0 of one row. */
    eachInRow(row, visit) {
      if (this.full) {
        const start = row * this.columns;
        for (let key = 0; key < this.columns; key++) if (this.tile[start + key]) visit(key, WEIGHT[this.tile[start + key]]);
        return;
      }
      for (let i = row * this.kept; i < (row + 1) * this.kept; i++) if (this.top[i]) visit(this.keys[i], WEIGHT[this.top[i]]);
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
        const left = this.full ? others : shared - first;
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

    /* What token `row` looks at: [{token, weight}], weights above 0, in the order of the text. */
    from(row, discount) {
      const seen = [];
      this.eachInRow(row, (key, carried) => {
        const weight = this.adjusted(row, key, carried, discount);
        if (weight > 0) seen.push({ token: key, weight });
      });
      return seen.sort((a, b) => a.token - b.token);
    }

    /* Who looks at token `key`. */
    to(key, discount) {
      const seen = [];
      const add = (row, carried) => {
        const weight = this.adjusted(row, key, carried, discount);
        if (weight > 0) seen.push({ token: row, weight });
      };
      if (this.full) {
        for (let row = 0; row < this.rows; row++) add(row, WEIGHT[this.tile[row * this.columns + key]]);
        return seen;
      }
      for (let i = 0; i < this.keys.length; i++) {
        if (this.keys[i] === key && this.top[i]) add(Math.floor(i / this.kept), WEIGHT[this.top[i]]);
      }
      return seen;
    }

    links(token, direction, discount) {
      return direction === "from" ? this.from(token, discount) : this.to(token, discount);
    }

    /* The whole matrix as steps of ink, at most `down` x `across`; where it is larger, the largest weight of a
       cell is shown. */
    steps(down, across, discount) {
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

  async function loadLayer(run, layer) {
    const info = run.layer(layer);
    const rows = {};
    const wanted = run.header.statistics.map(async ({ key }) => {
      const values = await run.block("rows/" + layer + "/" + key);
      if (values) rows[key] = values;
    });
    const [weights, topKeys, topWeights, sink] = await Promise.all([
      info.tile ? run.block("weights/" + layer) : null,
      run.block("top_keys/" + layer),
      run.block("top_weights/" + layer),
      info.sink ? run.block("sink/" + layer) : null,
      ...wanted,
    ]);
    return { weights, topKeys, topWeights, sink, rows };
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
    if (!made.has(name)) made.set(name, new HeadWeights(run, head, blocks));
    return made.get(name);
  }

  return { ready, WEIGHT, LEAST_LEFT };
})();
