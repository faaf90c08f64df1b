// Filters h(l) of one eigenvalue l, as icl_lab.identify.filters has them, and the residual by which identify judges.
// Eigenvalues and rates are in units of the training prompts. All functions are pure.

/** @typedef {(l: number, steps: number, ...theta: number[]) => number} Filter h(l) */
/** @typedef {{contexts: number, queries: number, size: number, eigenvalues: Float32Array, weights: Float32Array}} Contexts */

/** identify.filters.gd with one rate. @type {Filter} */
export function gd(l, steps, rate) {
  return (1 - (1 - rate * l) ** steps) / l;
}

/** identify.filters.gd_plus_plus with shared numbers. @type {Filter} */
export function gdPlusPlus(l, steps, rate, gamma) {
  let r = 1, seen = l;
  for (let k = 0; k < steps; k++) {
    r *= 1 - rate * seen;
    seen *= (1 - gamma * seen) ** 2;
  }
  return (1 - r) / l;
}

/** identify.filters.heavy_ball. @type {Filter} */
export function heavyBall(l, steps, rate, momentum) {
  let r = 1, u = 0;
  for (let k = 0; k < steps; k++) {
    u = momentum * u + l * r;
    r -= rate * u;
  }
  return (1 - r) / l;
}

/** identify.filters.ridge. @type {Filter} */
export function ridge(l, steps, strength) {
  return 1 / (l + strength);
}

/** identify.filters.flow. @type {Filter} */
export function flow(l, steps, time) {
  return -Math.expm1(-time * l) / l;
}

/** identify.filters.least_squares. @type {Filter} */
export function leastSquares(l) {
  return 1 / l;
}

/** @type {{[name: string]: Filter}} */
export const filters = {
  "GD": gd, "GD++": gdPlusPlus, "heavy ball": heavyBall, "ridge": ridge, "gradient flow": flow, "least squares": leastSquares,
};

/**
 * Median over contexts of |f - g| / |f| over the queries of a context: identify.fitting.judged.
 *
 * @param {Contexts} on
 * @param {Float32Array} answers of the learner, contexts x queries
 * @param {(l: number) => number} h
 * @param {number} scale of all inputs; labels follow
 */
export function residual(on, answers, h, scale) {
  const { contexts, queries, size, eigenvalues, weights } = on, errors = [], filter = new Float64Array(size);
  for (let c = 0; c < contexts; c++) {
    for (let d = 0; d < size; d++) filter[d] = scale ** 3 * h(scale ** 2 * eigenvalues[c * size + d]);
    let off = 0, all = 0;
    for (let q = 0; q < queries; q++) {
      let g = 0;
      for (let d = 0; d < size; d++) g += weights[(c * queries + q) * size + d] * filter[d];
      const f = answers[c * queries + q];
      off += (g - f) ** 2;
      all += f * f;
    }
    errors.push(Math.sqrt(off / all));
  }
  errors.sort((a, b) => a - b);
  const middle = errors.length / 2;
  return errors.length % 2 ? errors[Math.floor(middle)] : (errors[middle - 1] + errors[middle]) / 2;
}

/** Every other context, which are training prompts. @param {Contexts} every @returns {Contexts} */
export function training({ contexts, queries, size, eigenvalues, weights }) {
  const half = (/** @type {Float32Array} */ values, /** @type {number} */ width) => values.filter((_, i) => Math.floor(i / width) % 2 === 0);
  return { contexts: Math.ceil(contexts / 2), queries, size, eigenvalues: half(eigenvalues, size), weights: half(weights, queries * size) };
}

/**
 * The least of a function of few positive numbers inside bounds, from a start: compass search in their logarithms.
 *
 * @param {(theta: number[]) => number} of
 * @param {number[]} start
 * @param {number[][]} bounds
 */
export function least(of, start, bounds) {
  let at = start.map(Math.log), value = of(start), step = 0.4;
  while (step > 1e-4) {
    let better = false;
    for (let i = 0; i < at.length; i++) {
      for (const sign of [1, -1]) {
        const next = [...at];
        next[i] = Math.min(Math.log(bounds[i][1]), Math.max(Math.log(bounds[i][0]), next[i] + sign * step));
        const found = of(next.map(Math.exp));
        if (found < value) [at, value, better] = [next, found, true];
      }
    }
    if (!better) step /= 2;
  }
  return at.map(Math.exp);
}
