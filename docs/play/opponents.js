// The opponents as numbers: the JavaScript form of marl/experiments/play.py and of the learners that it plays.
// A policy is the list of the probabilities of C at the start and after CC, CD, DC, DD, own action first.
"use strict";

const OTHER_VIEW = [0, 1, 3, 2, 4]; // a state as seen by the other player, whose CD is one's own DC

const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const logit = (p) => Math.log(p) - Math.log1p(-p);
const dot = (xs, ys) => xs.reduce((sum, x, i) => sum + x * ys[i], 0);
// The product of a row and a matrix, plus a bias.
const affine = (row, matrix, bias) => bias.map((b, j) => row.reduce((sum, x, i) => sum + x * matrix[i][j], b));

// An estimate of a person's policy from counts [5][2] of both actions: Laplace's rule of succession, in the single
// precision of marl.play.
function estimatePolicy(counts) {
  return counts.map(([c, d]) => Math.fround((c + 1) / (c + d + 2)));
}

// Solves matrix x = right by elimination with pivots.
function solve(matrix, right) {
  const rows = matrix.map((row, i) => [...row, right[i]]);
  rows.forEach((_, k) => {
    const pivot = rows.slice(k).reduce((best, row, i) => (Math.abs(row[k]) > Math.abs(rows[best][k]) ? k + i : best), k);
    [rows[k], rows[pivot]] = [rows[pivot], rows[k]];
    rows.forEach((row, i) => {
      const factor = i === k ? 0 : row[k] / rows[k][k];
      rows[i] = row.map((x, j) => x - factor * rows[k][j]);
    });
  });
  return rows.map((row, i) => row[rows.length] / row[i]);
}

// The gradient of the discounted return by one's own logits, in the repeated game of two policies:
// dV / dlogit(s) = visits(s) p(s) (1 - p(s)) (value after C - value after D).
function payoffGradient(policy, other, payoffs, discount) {
  const theirs = OTHER_VIEW.map((s) => other[s]);
  const joint = policy.map((p, s) => [p * theirs[s], p * (1 - theirs[s]), (1 - p) * theirs[s], (1 - p) * (1 - theirs[s])]);
  const kept = (i, j) => (i === j ? 1 : 0) - discount * joint[i + 1][j];
  const square = (entry) => [0, 1, 2, 3].map((i) => [0, 1, 2, 3].map((j) => entry(i, j)));
  const values = solve(square(kept), payoffs);
  const visits = solve(square((i, j) => kept(j, i)), joint[0]);
  return policy.map((p, s) => {
    const after = (cc, cd) => theirs[s] * values[cc] + (1 - theirs[s]) * values[cd];
    const weight = s === 0 ? 1 : discount * visits[s - 1];
    return weight * p * (1 - p) * (after(0, 1) - after(2, 3));
  });
}

// Each kind of opponent: (opponent, mind, estimate) -> the parts of the mind that change.
const UPDATES = {
  fixed: (opponent) => ({ policy: opponent.policy }),
  naive: (opponent, mind, estimate) => {
    const own = mind.logits.map(sigmoid);
    const slope = payoffGradient(own, estimate, PLAY.payoffs, opponent.discount);
    const logits = mind.logits.map((x, s) => x + opponent.learningRate * slope[s]);
    return { logits, policy: logits.map(sigmoid) };
  },
  mfos: ({ weights: { w1, b1, w2, b2 } }, mind, estimate) => ({
    policy: affine(affine([...mind.policy, ...estimate], w1, b1).map(Math.tanh), w2, b2).map(sigmoid),
  }),
  shaper: ({ weights }, mind, estimate) => {
    const seen = [...mind.policy, ...estimate];
    const gates = affine([...seen, ...mind.hidden], weights.gates, weights.gates_bias).map(sigmoid);
    const [reset, keep] = [gates.slice(0, mind.hidden.length), gates.slice(mind.hidden.length)];
    const gated = mind.hidden.map((h, i) => reset[i] * h);
    const candidate = affine([...seen, ...gated], weights.candidate, weights.candidate_bias).map(Math.tanh);
    const hidden = candidate.map((n, i) => (1 - keep[i]) * n + keep[i] * mind.hidden[i]);
    return { hidden, policy: affine(hidden, weights.out, weights.out_bias).map(sigmoid) };
  },
};

// An opponent after a step against an estimate of the other's policy.
function stepMind(opponent, mind, estimate) {
  return { ...mind, ...UPDATES[opponent.kind](opponent, mind, estimate) };
}

// An opponent before the first round, from the five logits at which it begins: one step against random actions.
function beginMind(opponent, logits) {
  const hidden = opponent.kind === "shaper" ? opponent.weights.candidate_bias.map(() => 0) : [];
  return stepMind(opponent, { logits, hidden, policy: logits.map(sigmoid) }, Array(5).fill(0.5));
}
