/* The map of all heads to take away, maps or one statistic, in the order shown, and its numbers. */
const MapPicture = (function () {
  const { make } = Axis;
  const LEGEND = 48;

  function names(plan) {
    const quiet = { fill: Figure.style("--quiet") };
    const rows = plan.rows.map((row) => Figure.words(row.text, 0, row.y + plan.cell / 2 + 4.5, quiet));
    const columns = plan.labels.map((label) => (
      Figure.words(label.text, label.x + (label.width ?? 0) / 2, label.y + 12, { ...quiet, "text-anchor": "middle" })
    ));
    return [...rows, ...columns];
  }

  function value(share, { x, y }, cell) {
    const parts = [make("rect", { x, y, width: cell, height: cell, fill: Ink.colour(share ?? 0) })];
    if (share === null) parts.push(make("path", { d: "M" + x + " " + (y + cell) + "l" + cell + " " + -cell, stroke: Ink.colour(0.4) }));
    return parts;
  }

  async function cell(run, place, state, size) {
    const thumbnails = await run.block("thumbnails/" + place.layer);
    const found = MapInk.steps(run, thumbnails, place, size, state.discount);
    return [Figure.embedded(Ink.image(found.steps, found.columns, found.rows), place.x, place.y, size, size)];
  }

  function legend(marks, title, y) {
    const strip = Ink.image(Uint8Array.from({ length: 256 }, (_, i) => i), 256, 1);
    const texts = marks.map(({ at, text }) => Figure.words(text, 72 + 160 * at, y + 24, { "text-anchor": "middle" }));
    return [Figure.words(title, 0, y + 8), Figure.embedded(strip, 72, y, 160, 8), ...texts];
  }

  async function picture({ run, map }) {
    const state = State.current(run);
    const plan = map.plan();
    const statistic = MapInk.shown(state);
    const full = statistic ? MapInk.fullInk(statistic) : 1;
    const places = plan.rows.flatMap((row) => row.places);
    const drawn = await Promise.all(places.map((place) => {
      if (!statistic) return cell(run, place, state, plan.cell);
      const known = run.head(place.layer, place.head)[statistic.key];
      return value(known === null ? null : known / full, place, plan.cell);
    }));
    const frames = places.map(({ x, y }) => make("rect", {
      x: x - 0.5, y: y - 0.5, width: plan.cell + 1, height: plan.cell + 1, fill: "none", stroke: Figure.style("--hair"),
    }));
    const { marks, title } = MapWords.scale(state);
    const box = { x: 0, y: 0, width: plan.width, height: plan.height + LEGEND };
    const parts = [...names(plan), ...drawn.flat(), ...frames, ...legend(marks, title, plan.height + 24)];
    const shows = statistic ? statistic.label + " (" + statistic.unit + "): " + statistic.definition + "."
      : "ink is the square root of the weight, queries down, keys across.";
    return Figure.drawn(box, parts, [
      run.header.model.name + ", every head: " + shows + " " + MapWords.said(state), Caption.source(run),
    ]);
  }

  /* One line a head; with maps, one line for each row of each map. */
  async function table({ run, map }) {
    const state = State.current(run);
    const places = map.plan().rows.flatMap((row) => row.places);
    const place = ({ layer, head }) => [layer, head, run.head(layer, head).kv_head];
    const statistic = MapInk.shown(state);
    if (statistic) {
      const rows = places.map((one) => [...place(one), run.head(one.layer, one.head)[statistic.key], "exact"]);
      return Csv.table(["layer", "head", "kv_head", statistic.key, "numbers"], rows);
    }
    const widest = Math.max(...run.header.layers.map((layer) => layer.map_columns));
    const rows = [];
    for (const one of places) {
      const thumbnails = await run.block("thumbnails/" + one.layer);
      const map = MapInk.steps(run, thumbnails, one, Infinity, state.discount);
      for (let row = 0; row < map.rows; row++) {
        const codes = map.steps.subarray(row * map.columns, (row + 1) * map.columns);
        rows.push([...place(one), "8-bit", row, ...Array.from(codes, (code) => Csv.weight(Heads.WEIGHT[code], false))]);
      }
    }
    const cells = Array.from({ length: widest }, (_, i) => "key_cell_" + i);
    return Csv.table(["layer", "head", "kv_head", "numbers", "map_row", ...cells], rows);
  }

  const name = ({ run }) => Caption.file([run.header.model.name, "heads", State.current(run).show]);

  return { picture, table, name };
})();
