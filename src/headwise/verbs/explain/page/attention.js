/* Multi-head attention, one step after the other, on plain arrays of rows. */

function product(left, right) {
  return left.map((row) => right[0].map((_, column) => row.reduce((sum, one, k) => sum + one * right[k][column], 0)));
}

function transposed(matrix) {
  return matrix[0].map((_, column) => matrix.map((row) => row[column]));
}

/* Taking the row's largest score off changes no weight and keeps exp from overflowing. */
function softmax(row) {
  const largest = Math.max(...row);
  const raised = row.map((score) => Math.exp(score - largest));
  const total = raised.reduce((sum, one) => sum + one, 0);
  return raised.map((one) => one / total);
}

function attend(x, wQ, wK, wV, causal) {
  const [query, key, value] = [wQ, wK, wV].map((weights) => product(x, weights));
  const scores = product(query, transposed(key));
  const scaled = scores.map((row) => row.map((score) => score / Math.sqrt(query[0].length)));
  const masked = scaled.map((row, i) => row.map((score, j) => (causal && j > i ? -Infinity : score)));
  const weights = masked.map(softmax);
  return { query, key, value, scores, scaled, masked, weights, output: product(weights, value) };
}

/* numbers: input, w_q by query head, w_k and w_v by KV head, w_o; kvHeads: which KV head each query head reads. */
function attention(numbers, kvHeads, causal) {
  const heads = kvHeads.map((kv, head) => attend(numbers.input, numbers.w_q[head], numbers.w_k[kv], numbers.w_v[kv], causal));
  const concatenated = numbers.input.map((_, i) => heads.flatMap((head) => head.output[i]));
  return { heads, concatenated, output: product(concatenated, numbers.w_o) };
}
