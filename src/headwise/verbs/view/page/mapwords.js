/* What the map of heads says of itself, on the page and under a picture of it. */
const MapWords = (function () {
  const { runs } = Data;

  /* The numbers along the scale of ink. */
  function scale(state) {
    const statistic = MapInk.shown(state);
    if (!statistic) return { title: "weight", marks: [0, 0.1, 0.5, 1].map((at) => ({ at: Math.sqrt(at), text: String(at) })) };
    const full = MapInk.fullInk(statistic);
    return { title: statistic.unit, marks: [0, 0.5, 1].map((at) => ({ at, text: Words.digits(full * at) })) };
  }

  /* How the heads are ordered, and what leaving the first token out does not reach. */
  function said(state) {
    const order = state.order === "layer" ? "Layers down, heads across" : "All heads, largest first";
    const together = state.order === "layer" && runs[0].header.layers.some(MapLayout.of(runs[0]).grouped)
      ? "; heads of one KV head stand together" : "";
    const kept = state.discount && !runs.every(MapInk.whole) && !MapInk.shown(state) ? " Pooled maps keep the first token." : "";
    return order + together + "." + kept;
  }

  return { scale, said };
})();
