/* Where each head stands in the map: by layer, the heads of one KV head together, or in the order of a statistic. */
const MapLayout = (function () {
  const made = new Map();      // run -> its layout
  const GAP = 2;
  const GROUP_GAP = 10;
  const LEFT = 40;
  const LINE = 20;             // of numbers above the map
  const LARGEST = 64;
  const EASY = 32;
  const SMALLEST = 12;
  const TALLEST = 1120;        // a map of many layers is kept near one screen

  function of(run) {
    if (!made.has(run)) made.set(run, layout(run));
    return made.get(run);
  }

  function layout(run) {
    const { header } = run;
    const widest = header.layers.reduce((a, b) => (b.num_heads > a.num_heads ? b : a));
    const top = () => (alike ? (grouped(widest) ? 2 * LINE : LINE) : 0);
    const grouped = (layer) => layer.num_kv_heads > 1 && layer.num_heads > layer.num_kv_heads;

    function groupGaps(layer) {
      return grouped(layer) ? (layer.num_kv_heads - 1) * GROUP_GAP : 0;
    }

    /* A whole number of pixels for each cell of a small map, where that costs little: its lines stay sharp. */
    function cellSize(available) {
      const gaps = Math.max(...header.layers.map(groupGaps));
      const byWidth = Math.floor((available - LEFT - gaps) / widest.num_heads) - GAP;
      const byHeight = Math.max(24, Math.floor(TALLEST / header.layers.length) - GAP);
      const size = Math.max(SMALLEST, Math.min(LARGEST, byWidth, byHeight));
      const cells = Math.min(...header.layers.map((layer) => layer.map_columns));
      const sharp = Math.floor(size / cells) * cells;
      return sharp >= size * 0.8 && sharp >= SMALLEST ? sharp : size;
    }

    const alike = header.layers.every((layer) => (
      layer.num_heads === widest.num_heads && layer.num_kv_heads === widest.num_kv_heads
    ));

    /* Heads and KV heads are numbered above the map when that holds for every layer. */
    function columnLabels(cell) {
      const labels = [];
      if (!alike) return labels;
      const size = run.groupSize(widest.layer);
      const every = cell < 20 ? 4 : 1;
      for (let head = 0; head < widest.num_heads; head++) {
        if (head % every) continue;
        labels.push({ text: String(head), x: headX(widest, head, cell) + cell / 2, y: top() - LINE, kind: "head" });
      }
      if (!grouped(widest)) return labels;
      for (let kv = 0; kv < widest.num_kv_heads; kv++) {
        const x = headX(widest, kv * size, cell);
        const text = size * cell > 44 ? "KV " + kv : String(kv);
        labels.push({ text, x, y: 0, width: headX(widest, kv * size + size - 1, cell) + cell - x, kind: "kv" });
      }
      return labels;
    }

    function headX(layer, head, cell) {
      const gaps = grouped(layer) ? Math.floor(head / run.groupSize(layer.layer)) * GROUP_GAP : 0;
      return LEFT + head * (cell + GAP) + gaps;
    }

    function byLayer(cell) {
      const every = cell < 14 ? 5 : 1;
      const rows = header.layers.map((layer, index) => {
        const y = top() + index * (cell + GAP);
        const places = [];
        for (let head = 0; head < layer.num_heads; head++) {
          places.push({ layer: layer.layer, head, x: headX(layer, head, cell), y });
        }
        return { y, text: index % every ? "" : String(layer.layer), name: "layer " + layer.layer, places };
      });
      const width = Math.max(...header.layers.map((layer) => headX(layer, layer.num_heads - 1, cell))) + cell;
      return { rows, labels: columnLabels(cell), width };
    }

    function byStatistic(cell, key) {
      const value = (head) => head[key] ?? -Infinity;
      const sorted = [...header.heads].sort((a, b) => value(b) - value(a));
      const columns = widest.num_heads;
      const rows = [];
      for (let start = 0; start < sorted.length; start += columns) {
        const y = rows.length * (cell + GAP);
        const places = sorted.slice(start, start + columns).map((head, column) => (
          { layer: head.layer, head: head.head, x: LEFT + 8 + column * (cell + GAP), y }
        ));
        const text = cell < 14 && rows.length % 2 ? "" : Words.digits(sorted[start][key]);
        rows.push({ y, text, name: "from " + Words.digits(sorted[start][key]), places });
      }
      return { rows, labels: [], width: LEFT + 8 + columns * (cell + GAP) - GAP };
    }

    function arrange(available, order) {
      const cell = cellSize(available);
      const plan = order === "layer" ? byLayer(cell) : byStatistic(cell, order);
      const last = plan.rows[plan.rows.length - 1];
      return { ...plan, cell, height: last.y + cell };
    }

    /* The width at which the map is read with ease beside the open head. */
    const wanted = () => LEFT + widest.num_heads * (EASY + GAP) + groupGaps(widest);

    return { arrange, grouped, widest, alike, wanted };
  }

  return { of };
})();
