/* What stands under a picture that was taken away: whoever finds it alone can tell what it shows. */
const Caption = (function () {
  const EXCERPT = 160;         // characters of the text

  function excerpt(tokens) {
    const characters = [...tokens.map(Words.spelled).join("").trim()];
    return characters.length > EXCERPT ? characters.slice(0, EXCERPT).join("") + "…" : characters.join("");
  }

  /* The model and the text of a run, and the program that drew it. */
  function source(run) {
    const { program } = Data.header;
    const texts = [...(run.crossed || !run.grid ? [run.queries] : []), ...(run.crossed && !run.grid ? [run.keys] : [])];
    const quoted = texts.map((tokens) => "“" + excerpt(tokens) + "”").join(" looking at ");
    const part = run.header.part ? " (" + Words.attention(run) + ")" : "";
    return run.header.model.name + part + " on " + Words.size(run) + (quoted ? ": " + quoted : ".")
      + " Drawn by " + program.name + " " + program.version + ".";
  }

  const head = (run, state) => run.header.model.name + ", layer " + state.layer + ", head " + state.head;

  /* What is said where the first token is left out. */
  function discounted(state, sinks) {
    if (!state.discount) return "";
    return " The first token is left out and each row brought back to its sum" + (sinks ? "; the learned sink keeps its share." : ".");
  }

  /* A file name without what file systems refuse. */
  function file(parts) {
    return parts.join("-").replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^[.-]+/u, "").slice(0, 96) || "headwise";
  }

  return { source, head, discounted, file };
})();
