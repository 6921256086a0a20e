/* The open head to take away: its matrix with the row beside it, its arcs, and the numbers of both. */
const HeadPicture = (function () {
  const { make } = Axis;
  const COLUMNS = [
    "layer", "head", "query", "query_token", "key", "key_token", "weight", "numbers", "first_token", "chosen",
  ];
  const BAR = { gap: 48, name: 120, track: 128, number: 64, line: 20 };

  /* The row profile as it stands beside the matrix. */
  function profile(bench, x, y) {
    const parts = [Figure.words(bench.readings.heading(), x, y + 12, { "font-family": Figure.style("--sans"), "font-weight": "600" })];
    bench.readings.shown().filter((one) => one.name).forEach(({ name, weight, exact }, i) => {
      const top = y + 28 + i * BAR.line;
      const at = x + BAR.name + 12;
      parts.push(
        Figure.words(name, x + BAR.name, top + 12, { "text-anchor": "end" }),
        make("rect", { x: at, y: top + 11, width: BAR.track, height: 1, fill: Figure.style("--hair") }),
        make("rect", { x: at, y: top + 4, width: BAR.track * Math.min(1, weight ?? 0), height: 8, fill: Figure.style("--full") }),
      );
      if (weight !== null) parts.push(Figure.words(Words.weight(weight, exact), at + BAR.track + 12, top + 12));
    });
    return { parts, height: 28 + bench.readings.shown().length * BAR.line };
  }

  function matrix(bench) {
    const shown = bench.matrix.picture();
    const { state, head, left, top, width, height, sink, mark } = shown;
    const parts = [
      Figure.cells(shown.steps, shown.columns, shown.rows, left, top, width, height),
      make("rect", { x: left, y: top, width, height, fill: "none", stroke: Figure.style("--hair") }),
      make("rect", { ...mark, fill: "none", stroke: Figure.style("--full") }),
      ...Array.from(shown.names, Figure.dressed),
    ];
    if (sink) parts.push(Figure.cells(head.sinks, 1, head.rows, left - shown.gap - sink, top, sink, height));
    const beside = profile(bench, left + width + shown.right + BAR.gap, top);
    const box = {
      x: 0, y: 0, width: left + width + shown.right + BAR.gap + BAR.name + BAR.track + BAR.number + 24,
      height: top + Math.max(height, beside.height),
    };
    const caption = [
      Caption.head(bench.run, state) + ": queries down, keys across; ink is the square root of the weight. " + shown.said,
      Caption.source(bench.run),
    ];
    return Figure.drawn(box, [...parts, ...beside.parts], caption);
  }

  function arcs(bench) {
    const { state, head } = bench.matrix.picture();
    const svg = bench.run.part("arcs");
    const box = svg.getBBox();
    const caption = [
      Caption.head(bench.run, state) + ", as " + (bench.run.crossed ? "lines between the texts" : "arcs over the text") + ". Inked: “" + bench.readings.heading() + "”; width is the weight, ink its square root."
        + Caption.discounted(state, head.sinks),
      Caption.source(bench.run),
    ];
    return Figure.drawn(box, Array.from(svg.children, Figure.dressed), caption);
  }

  /* One line for a pair; key null is the learned sink. */
  function line(bench, { state }, query, key, { weight, exact }) {
    return [
      state.layer, state.head, query, Words.spelled(bench.run.queries[query]),
      key, key === null ? "learned sink" : Words.spelled(bench.run.keys[key]), Csv.weight(weight, exact),
      exact ? "exact" : "8-bit", state.discount ? "left out" : "kept",
      (state.direction === "from" ? query : key) === state.token ? 1 : 0,
    ];
  }

  /* Every pair whose weight is carried and above 0. */
  function matrixTable(bench) {
    const shown = bench.matrix.picture();
    const { state, head } = shown;
    const rows = [];
    for (let query = 0; query < head.rows; query++) {
      if (head.sink(query) > 0) rows.push(line(bench, shown, query, null, { weight: head.sink(query) }));
      for (const link of head.from(query, state.discount)) rows.push(line(bench, shown, query, link.token, link));
    }
    return Csv.table(COLUMNS, rows);
  }

  /* The pairs that have an arc: the chosen token's, and the stronger ones of the others where those are drawn. */
  function arcsTable(bench) {
    const shown = bench.matrix.picture();
    const { state, head } = shown;
    const from = state.direction === "from";
    const { all, least } = bench.arcs.shows;
    const rows = bench.arcs.drawn(state, head).map((link) => (
      from ? line(bench, shown, state.token, link.token, link) : line(bench, shown, link.token, state.token, link)
    ));
    if (from && head.sink(state.token) > 0) rows.push(line(bench, shown, state.token, null, { weight: head.sink(state.token) }));
    for (let query = 0; all && query < head.rows; query++) {
      for (const link of head.from(query, state.discount)) {
        const chosen = (from ? query : link.token) === state.token;
        if (link.weight >= least && (bench.run.crossed || link.token !== query) && !chosen) rows.push(line(bench, shown, query, link.token, link));
      }
    }
    return Csv.table(COLUMNS, rows);
  }

  const name = (bench, what) => {
    const { state } = bench.matrix.picture();
    return Caption.file([bench.run.header.model.name, "layer", state.layer, "head", state.head, what]);
  };

  return { matrix, arcs, matrixTable, arcsTable, name };
})();
