/* What the map of heads says of itself, on the page and under a picture of it. */
const MapWords = (function () {
  const { measures, runs } = Data;

  /* The scale of ink: {title, marks, palette}. */
  function scale(source, state) {
    const statistic = MapSource.shown(state);
    if (!statistic) return source;
    const full = source.full(statistic);
    const marks = [0, 0.5, 1].map((at) => ({ at, text: Words.digits(full * (source.least + at * (1 - source.least))) }));
    return { title: statistic.unit + (source.least ? ", " + source.title : ""), marks, palette: source.palette };
  }

  /* Where a score inks or orders the map: of what it is. */
  function scored(state) {
    const score = measures.find((one) => one.read && [state.show, state.order].includes(one.key));
    return score ? " Scores are of " + score.read + ", not of this text." : "";
  }

  /* How the heads are ordered, and what leaving the first token out does not reach. */
  function said(state) {
    const order = state.order === "layer" ? "Layers down, heads across" : "All heads, largest first" + (runs.length > 1 && Data.sameHeads ? " in the first" : "");
    const together = state.order === "layer" && runs[0].header.layers.some(MapLayout.of(runs[0]).grouped)
      ? "; heads of one KV head stand together" : "";
    const kept = state.discount && !runs.every(MapInk.whole) && !MapSource.shown(state) ? " Pooled maps keep the first token." : "";
    return order + together + "." + kept + scored(state);
  }

  /* Why there is no picture of a difference. */
  function missing(state) {
    if (runs.length < 2) return "";
    if (!Data.sameHeads) return " The two have other layers or heads: there is no difference to show.";
    if (!Data.sameLength && !MapSource.shown(state)) return " Maps of texts of different length have no difference cell by cell; statistics have.";
    return "";
  }

  return { scale, said, missing };
})();
