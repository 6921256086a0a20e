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

  function value(share, { x, y }, cell, palette) {
    const parts = [make("rect", { x, y, width: cell, height: cell, fill: Ink.colourOf(share ?? 0, palette) })];
    if (share === null) parts.push(make("path", { d: "M" + x + " " + (y + cell) + "l" + cell + " " + -cell, stroke: Ink.colour(0.4) }));
    return parts;
  }

  async function cell(source, place, state, size) {
    const found = await source.steps(place, size, state.discount);
    return [Figure.embedded(Ink.image(found.steps, found.columns, found.rows, source.palette), place.x, place.y, size, size)];
  }

  function legend({ title, marks, palette }, y) {
    const left = 24 + 8 * title.length;
    const texts = marks.map(({ at, text }) => Figure.words(text, left + 160 * at, y + 24, { "text-anchor": "middle" }));
    return [Figure.words(title, 0, y + 8), Figure.embedded(Ink.whole(palette), left, y, 160, 8), ...texts];
  }

  /* Which runs the map shows. */
  const subject = ({ run, name, palette }) => run.header.model.name + ", every head" + (Data.runs.length > 1 ? " (" + name + ")" : "")
    + (palette === "scale" ? "" : ", one colour for each sign");

  async function picture({ source, map }) {
    const state = State.current(source.run);
    const plan = map.plan();
    const statistic = MapSource.shown(state);
    const places = plan.rows.flatMap((row) => row.places);
    const drawn = await Promise.all(places.map((place) => {
      if (!statistic) return cell(source, place, state, plan.cell);
      const known = source.value(place, statistic.key);
      return value(known === null ? null : known / source.full(statistic), place, plan.cell, source.palette);
    }));
    const frames = places.map(({ x, y }) => make("rect", {
      x: x - 0.5, y: y - 0.5, width: plan.cell + 1, height: plan.cell + 1, fill: "none", stroke: Figure.style("--hair"),
    }));
    const box = { x: 0, y: 0, width: plan.width, height: plan.height + LEGEND };
    const parts = [...names(plan), ...drawn.flat(), ...frames, ...legend(MapWords.scale(source, state), plan.height + 24)];
    const shows = statistic ? statistic.label + " (" + statistic.unit + "): " + statistic.definition + "."
      : "ink is the square root of the weight, queries down, keys across.";
    const sources = source.palette === "scale" ? [source.run] : Data.runs;
    return Figure.drawn(box, parts, [subject(source) + ": " + shows + " " + MapWords.said(state), ...sources.map(Caption.source)]);
  }

  /* One line a head; with maps, one line for each row of each map. */
  async function table({ source, map }) {
    const state = State.current(source.run);
    const places = map.plan().rows.flatMap((row) => row.places);
    const place = ({ layer, head }) => [layer, head, source.run.head(layer, head).kv_head];
    const statistic = MapSource.shown(state);
    if (statistic) {
      const rows = places.map((one) => [...place(one), source.value(one, statistic.key), "exact"]);
      return Csv.table(["layer", "head", "kv_head", statistic.key, "numbers"], rows);
    }
    const widest = Math.max(...source.run.header.layers.map((layer) => layer.map_columns));
    const rows = [];
    for (const one of places) {
      const found = await source.steps(one, Infinity, state.discount);
      for (let row = 0; row < found.rows; row++) {
        const steps = found.steps.subarray(row * found.columns, (row + 1) * found.columns);
        rows.push([...place(one), "8-bit", row, ...Array.from(steps, (step) => Csv.weight(source.weight(step), false))]);
      }
    }
    const cells = Array.from({ length: widest }, (_, i) => "key_cell_" + i);
    return Csv.table(["layer", "head", "kv_head", "numbers", "map_row", ...cells], rows);
  }

  const name = ({ source }) => Caption.file([source.run.header.model.name, "heads", State.current(source.run).show, ...(Data.runs.length > 1 ? [source.name] : [])]);

  return { picture, table, name };
})();
