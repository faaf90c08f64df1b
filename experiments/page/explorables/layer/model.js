// One layer of linear self-attention on tokens (x_1, x_2, y). All functions are pure; each names the one of Python that
// it equals. Prompts are { x: [[x_1, x_2], ..], y: [..] }; weights { a, b } are 3 x 3, row by row.

/** @typedef {{ x: number[][], y: ArrayLike<number> }} Prompt */
/** @typedef {{ a: ArrayLike<number>, b: ArrayLike<number> }} Weights */

const E = 3;

/**
 * Prediction for a query: models.LinearSelfAttention in prompts.joint_layout, by models.folded_weights.
 *
 * @param {Weights} weights
 * @param {Prompt} prompt
 * @param {number[]} query
 */
export function layer({ a, b }, { x, y }, query) {
  let prediction = 0;
  x.forEach(([u, v], n) => {
    const token = [u, v, y[n]];
    let score = 0, value = 0;
    for (let i = 0; i < E; i++) {
      value += token[i] * b[i * E + E - 1];
      for (let j = 0; j < E && i < 2; j++) score += query[i] * a[i * E + j] * token[j];
    }
    prediction -= score * value;
  });
  return prediction;
}

/**
 * The weights w of the linear function query -> w.query that a layer computes from a prompt.
 *
 * @param {Weights} weights
 * @param {Prompt} prompt
 */
export function implied(weights, prompt) {
  return [layer(weights, prompt, [1, 0]), layer(weights, prompt, [0, 1])];
}

/** Means over a prompt: [x x^T] as [s_11, s_12, s_22], and [x y]. @param {Prompt} prompt */
export function moments({ x, y }) {
  const s = [0, 0, 0], b = [0, 0], n = x.length;
  x.forEach(([u, v], i) => {
    s[0] += u * u / n; s[1] += u * v / n; s[2] += v * v / n;
    b[0] += u * y[i] / n; b[1] += v * y[i] / n;
  });
  return { s, b };
}

/** One step of gradient descent from zero: solvers.gradient_descent(rate, 1). @param {number} rate @param {Prompt} prompt */
export function gradientStep(rate, prompt) {
  return moments(prompt).b.map((value) => rate * value);
}

/** Least squares of full rank, zero where there is none: solvers.least_squares. @param {Prompt} prompt */
export function leastSquares(prompt) {
  const { s, b } = moments(prompt), det = s[0] * s[2] - s[1] * s[1];
  return det > 1e-9 ? [(s[2] * b[0] - s[1] * b[1]) / det, (s[0] * b[1] - s[1] * b[0]) / det] : [0, 0];
}

/** Weights by hand of a step: constructions.gradient_descent_weights, folded. @param {number} rate @param {number} examples */
export function built(rate, examples) {
  const a = new Float64Array(E * E), b = new Float64Array(E * E);
  a[0] = a[4] = 1;
  b[8] = -rate / examples;
  return { a, b };
}

/**
 * `built` in the gauge of trained weights: A and B may be scaled by c and 1 / c; c is the mean diagonal of A.
 *
 * @param {Weights} weights
 * @param {{ a: Float64Array, b: Float64Array }} hand
 */
export function aligned(weights, hand) {
  const c = (weights.a[0] + weights.a[4]) / 2 || 1;
  return { a: hand.a.map((value) => c * value), b: hand.b.map((value) => value / c) };
}

/**
 * Mean of two weights, share 0 the first and 1 the second: compare.interpolate.
 *
 * @param {Weights} first
 * @param {Weights} second
 * @param {number} share
 */
export function mixed(first, second, share) {
  const mix = (/** @type {ArrayLike<number>} */ one, /** @type {ArrayLike<number>} */ other) => Float64Array.from(one, (value, i) => (1 - share) * value + share * other[i]);
  return { a: mix(first.a, second.a), b: mix(first.b, second.b) };
}

/** The direction along which a layer can move its answer, where there is only one (A of rank one); else null. @param {Weights} weights */
export function onlyDirection({ a }) {
  let p = 0, q = 0, r = 0;
  for (let j = 0; j < E; j++) { p += a[j] * a[j]; q += a[j] * a[E + j]; r += a[E + j] * a[E + j]; }
  const half = (p + r) / 2, gap = Math.hypot((p - r) / 2, q);
  if (half - gap > 0.02 * (half + gap)) return null;
  const angle = Math.atan2(2 * q, p - r) / 2;
  return [Math.cos(angle), Math.sin(angle)];
}

/**
 * Loss of a step at inputs `size` times as large, over that of zero: theory.one_step_loss; more than 1 from sqrt 2 on.
 *
 * @param {number} size
 * @param {number} rate
 * @param {number} variance
 * @param {number} examples
 */
export function relativeLoss(size, rate, variance, examples) {
  const c = rate * variance * size * size;
  return 1 - 2 * c + c * c * (examples + 2 - 0.2) / examples;
}

/**
 * The largest difference between this layer and exported predictions: members x prompts, row by row.
 *
 * @param {Weights[]} members
 * @param {Prompt[]} prompts
 * @param {number[][]} queries
 * @param {ArrayLike<number>} predictions
 */
export function largestDifference(members, prompts, queries, predictions) {
  let worst = 0;
  members.forEach((weights, m) => prompts.forEach((prompt, i) => {
    const difference = Math.abs(layer(weights, prompt, queries[i]) - predictions[m * prompts.length + i]);
    worst = Math.max(worst, Number.isNaN(difference) ? Infinity : difference);
  }));
  return worst;
}
