/* What the small cells of a map of heads stand for: one run's numbers, or the second run's less the first's. */
const MapSource = (function () {
  const { measures } = Data;
  const known = (run, { layer, head }, key) => run.head(layer, head)[key] ?? null;
  const codes = (run, place, pixels, discount) => run.block("thumbnails/" + place.layer)
    .then((thumbnails) => MapInk.steps(run, thumbnails, place, pixels, discount));

  /* Full ink of a statistic: 1 for a share of weight, otherwise the largest value of all heads of all runs. */
  function full(statistic) {
    if (statistic.unit === "mass") return 1;
    const values = Data.runs.flatMap((run) => run.header.heads.map((head) => head[statistic.key] ?? 0));
    return Math.max(...values) || 1;
  }

  function of(run) {
    return {
      run, palette: "scale", name: run.name, suffix: run.suffix, least: 0, full,
      value: (place, key) => known(run, place, key),
      say: (place, key) => Words.digits(known(run, place, key)),
      steps: (place, pixels, discount) => codes(run, place, pixels, discount),
      weight: (step) => Heads.WEIGHT[step],
      drawsMaps: true,
      marks: [0, 0.1, 0.5, 1].map((weight) => ({ at: Math.sqrt(weight), text: String(weight) })),
      title: "weight",
    };
  }

  /* Steps of ink 1 to 255, 128 for no difference; as in the maps, ink goes with the square root. */
  function less(second, first) {
    const steps = second.steps.map((code, i) => {
      const apart = Heads.WEIGHT[code] - Heads.WEIGHT[first.steps[i]];
      return 128 + Math.round(127 * Math.sign(apart) * Math.sqrt(Math.abs(apart)));
    });
    return { ...second, steps };
  }

  function difference(first, second) {
    const value = (place, key) => {
      const [a, b] = [known(first, place, key), known(second, place, key)];
      return a === null || b === null ? null : b - a;
    };
    return {
      run: first, palette: "difference", name: "second less first", suffix: "-difference", least: -1, value,
      full: ({ key }) => Math.max(...first.header.heads.map((head) => Math.abs(value(head, key) ?? 0))) || 1,
      say: (place, key) => Words.signed(value(place, key)),
      steps: (place, pixels, discount) => Promise.all([second, first].map((run) => codes(run, place, pixels, discount)))
        .then(([b, a]) => less(b, a)),
      weight: (step) => Math.sign(step - 128) * ((step - 128) / 127) ** 2,
      // Cell by cell two maps can be compared only where the cells are those of the same tokens.
      drawsMaps: Data.sameLength,
      marks: [-1, -0.3, 0, 0.3, 1].map((weight) => ({ at: 0.5 + 0.5 * Math.sign(weight) * Math.sqrt(Math.abs(weight)), text: String(weight) })),
      title: "second less first",
    };
  }

  const all = Data.runs.map(of);
  if (Data.runs.length > 1 && Data.sameHeads) all.push(difference(...Data.runs));

  return { all, shown: (state) => measures.find((one) => one.key === state.show) };
})();
