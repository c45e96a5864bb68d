// The page: a match, drawn anew after every round.
"use strict";

const STATES = ["start", "CC", "CD", "DC", "DD"];
const [REWARD, SUCKER, TEMPTATION, PUNISHMENT] = PLAY.payoffs;
const WORDS = ["cooperated", "defected"];
let match;

const find = (id) => document.getElementById(id);
const number = (x, digits = 2) => x.toFixed(digits).replace(/^-(0(\.0+)?)$/, "$1").replace("-", "−");
const share = (x) => `${Math.round(100 * x)} %`;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}

function row(head, ...cells) {
  return element("tr", {}, element("th", { scope: "row" }, head), ...cells.map((cell) => element("td", {}, cell)));
}

// The opponent that is chosen, with the policy and the line of the slider's chi where it has one.
function chosenOpponent() {
  const opponent = PLAY.opponents[find("opponent").selectedIndex];
  const member = opponent.members?.find(({ chi }) => chi === Number(find("chi").value));
  const slope = member?.chi ?? opponent.line?.slope;
  const line = opponent.line && { ...opponent.line, slope };
  return { ...opponent, ...member, line };
}

// A draw from N(0, 1), by Box and Muller (1958).
function normal() {
  return Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
}

function begin() {
  const opponent = chosenOpponent();
  const logits = Array.from({ length: 5 }, normal);
  match = {
    opponent,
    logits,
    mind: beginMind(opponent, logits),
    counts: Array.from({ length: 5 }, () => [0, 0]),
    state: 0, // in your view
    rounds: [], // [your move, its move], 0 for C
    over: false,
  };
  draw();
  find("outcome").textContent = `A new match against ${opponent.called}, ${PLAY.rounds} rounds at most.`;
}

function play(action) {
  if (match.over) return;
  const answer = Math.random() < match.mind.policy[OTHER_VIEW[match.state]] ? 0 : 1;
  match.counts[match.state][action] += 1;
  match.rounds.push([action, answer]);
  match.state = 1 + 2 * action + answer;
  match.mind = stepMind(match.opponent, match.mind, estimatePolicy(match.counts));
  match.over = match.rounds.length === PLAY.rounds;
  draw();
  const [yours, its] = payoffs(match.rounds.at(-1));
  find("outcome").textContent =
    `Round ${match.rounds.length} of ${PLAY.rounds}: you ${WORDS[action]}, the opponent ${WORDS[answer]}. ` +
    `You get ${number(yours, 0)}, it gets ${number(its, 0)}.`;
}

function end() {
  match.over = true;
  draw();
}

// (yours, its) after a round.
function payoffs([action, answer]) {
  return [PLAY.payoffs[2 * action + answer], PLAY.payoffs[2 * answer + action]];
}

// (your average, its average) after each round.
function averages() {
  const totals = [0, 0];
  return match.rounds.map((round, i) => payoffs(round).map((payoff, player) => (totals[player] += payoff) / (i + 1)));
}

function cooperation(player) {
  return match.rounds.filter((round) => round[player] === 0).length / match.rounds.length;
}

function draw() {
  const { opponent, over, rounds } = match;
  find("slider").hidden = find("parameters").hidden = !opponent.members;
  find("chi-value").textContent = opponent.members ? number(opponent.chi) : "";
  find("about").textContent = opponent.about;
  find("update").textContent = opponent.update;
  find("command").textContent = `python -m marl.play ${opponent.spec}`;
  const focused = document.activeElement; // before it is disabled, because a browser may drop it at once
  find("cooperate").disabled = find("defect").disabled = over;
  find("end").disabled = over || !rounds.length;
  if (focused?.disabled) find("restart").focus(); // else the keyboard would start from the top again
  const path = averages();
  drawScore(path.at(-1));
  drawHistory();
  drawPolygon(path);
  drawPolicy();
  find("verdict").replaceChildren(...(over && rounds.length ? verdict(path.at(-1)) : []));
}

function drawScore(average) {
  const cells = (player) => {
    if (!average) return ["", "", "", ""];
    const last = match.rounds.at(-1);
    return ["CD"[last[player]], number(payoffs(last)[player], 0), number(average[player]), share(cooperation(player))];
  };
  find("score").replaceChildren(row("You", ...cells(0)), row("Opponent", ...cells(1)));
}

function drawHistory() {
  const shown = find("history");
  if (shown.childElementCount > match.rounds.length) shown.replaceChildren();
  match.rounds.slice(shown.childElementCount).forEach((round, i) => {
    const said = `you ${WORDS[round[0]]}, the opponent ${WORDS[round[1]]}`;
    const moves = round.map((move) => element("span", { class: "cd"[move], "aria-hidden": "true" }, "CD"[move]));
    shown.append(element("li", {}, element("span", { class: "hidden" }, said), ...moves));
  });
}

const across = (x) => 52 + 90 * (x - SUCKER);
const down = (y) => 296 - 90 * (y - SUCKER);

function shape(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.textContent = text;
  return made;
}

// The corners of the polygon along its hull: name, your payoff, its payoff, and the place of the label.
function corners() {
  return [
    ["both C", REWARD, REWARD, 8, -6, "start"],
    ["only it D", SUCKER, TEMPTATION, 8, -7, "start"],
    ["both D", PUNISHMENT, PUNISHMENT, -8, 16, "end"],
    ["only you D", TEMPTATION, SUCKER, -12, 5, "end"],
  ];
}

const hull = () => corners().map(([, x, y]) => [x, y]);

// The two ends, within the polygon, of the line on which the opponent's average is held; null without a line.
function lineEnds() {
  const { line } = match.opponent;
  if (!line) return null;
  const points = hull();
  const height = ([x, y]) => y - line.point - line.slope * (x - line.point);
  const ends = points.flatMap((from, i) => {
    const to = points[(i + 1) % 4];
    const [a, b] = [height(from), height(to)];
    if (a === b || a * b > 0) return [];
    return [from.map((x, axis) => x + (a / (a - b)) * (to[axis] - x))];
  });
  return [ends[0], ends.findLast(([x]) => Math.abs(x - ends[0][0]) > 1e-9)];
}

function drawPolygon(path) {
  const made = [];
  [SUCKER, PUNISHMENT, REWARD, TEMPTATION].forEach((x) => {
    made.push(shape("text", { x: across(x), y: 314, class: "tick", "text-anchor": "middle" }, number(x, 0)));
    made.push(shape("text", { x: 42, y: down(x) + 4, class: "tick", "text-anchor": "end" }, number(x, 0)));
  });
  made.push(shape("text", { x: across(-1.5), y: 331, "text-anchor": "middle" }, "your payoff per round"));
  const middle = `rotate(-90 11 ${down(-1.5)})`;
  made.push(shape("text", { x: 11, y: down(-1.5), transform: middle, "text-anchor": "middle" }, "the opponent's"));
  const places = (points) => points.map(([x, y]) => `${across(x)},${down(y)}`).join(" ");
  made.push(shape("polygon", { points: places(hull()), class: "possible" }));
  const ends = lineEnds();
  if (ends) made.push(shape("polyline", { points: places(ends), class: "enforced" }));
  corners().forEach(([name, x, y, right, below, anchor]) => {
    made.push(shape("circle", { cx: across(x), cy: down(y), r: 3, class: "corner" }));
    made.push(shape("text", { x: across(x) + right, y: down(y) + below, "text-anchor": anchor }, name));
  });
  const average = path.at(-1);
  if (average) {
    made.push(shape("polyline", { points: places(path), class: "trail" }));
    made.push(shape("circle", { cx: across(average[0]), cy: down(average[1]), r: 7, class: "average" }));
  }
  find("polygon").replaceChildren(find("polygon-title"), find("polygon-text"), ...made);
  const where = average ? `You got ${number(average[0])} on average, the opponent ${number(average[1])}.` : "No round yet.";
  find("polygon-text").textContent = `${where} ${lineText()}`;
  find("line-text").textContent = lineText();
  drawPoints(average);
}

function lineText() {
  const { line } = match.opponent;
  if (!line) return "It holds you on no line.";
  const times = line.slope === 1 ? "as much as" : `${Number(line.slope.toFixed(2))} times what`;
  const [gets, from] = line.point === PUNISHMENT ? ["get", "above mutual defection"] : ["lose", "below mutual cooperation"];
  return `Green line: over many rounds, whatever you do, it ${gets}s about ${times} you ${gets} ${from}.`;
}

function drawPoints(average) {
  const made = corners().map(([name, ...point]) => row(name, number(point[0], 0), number(point[1], 0)));
  (lineEnds() ?? []).forEach((point, i) => made.push(row(`line, end ${i + 1}`, ...point.map((x) => number(x)))));
  if (average) made.push(row("your average", ...average.map((x) => number(x))));
  find("points").replaceChildren(...made);
}

function drawPolicy() {
  const estimate = estimatePolicy(match.counts);
  const rows = STATES.map((name, state) => {
    const moves = [...name].map((move, i) => `${["it", "you"][i]} ${move}`).join(", ");
    const made = row(state ? moves : name, match.mind.policy[state].toFixed(3), estimate[OTHER_VIEW[state]].toFixed(3));
    if (state === OTHER_VIEW[match.state] && !match.over) {
      made.setAttribute("aria-current", "true");
      made.firstChild.append(" (now)");
    }
    return made;
  });
  find("policy").replaceChildren(...rows);
}

// Sentences on a match that is over.
function verdict([yours, its]) {
  const { called } = match.opponent;
  const [you, it] = [yours - PUNISHMENT, its - PUNISHMENT];
  let shared = `Mutual defection would have paid more to ${you < 0 ? "you" : called}`;
  if (you < 0 && it < 0) shared = "Mutual defection would have paid more to both";
  if (you >= 0 && it >= 0) {
    shared = you + it ? `Of every point above mutual defection it took ${number(it / (you + it))}` : "Both got what mutual defection pays";
  }
  return [
    element("p", {}, `You got ${number(yours)} per round, ${called} ${number(its)}. ${shared}.`),
    element(
      "p",
      {},
      `You cooperated in ${share(cooperation(0))} of the rounds, it in ${share(cooperation(1))}. ` +
        `Mutual cooperation pays ${number(REWARD)} to each, mutual defection ${number(PUNISHMENT)}.`,
    ),
    element("p", {}, [lesson(), dotText(yours, its)].join(" ").trim()),
  ];
}

// A sentence on what a match against such an opponent shows.
function lesson() {
  const { line, kind } = match.opponent;
  if (kind === "naive") return "The learner follows its own gain: punish its D and reward some of its C, and you shape what it learns.";
  if (!line) return "No line holds your average: what you do decides how both payoffs are divided.";
  if (line.slope === 1) return "It gives back what it gets, so that over many rounds both get the same.";
  const slope = Number(line.slope.toFixed(2));
  return line.point === PUNISHMENT
    ? `An extortioner makes your cooperation pay, but gains ${slope} points for each one that you gain. Mutual defection denies it that, and costs you too.`
    : `A generous strategy bears ${slope} times your loss: the more both cooperate, the less either loses.`;
}

// A sentence on where one's average lies beside the opponent's line; empty without a line.
function dotText(yours, its) {
  const { line } = match.opponent;
  if (!line) return "";
  const above = its - line.point - line.slope * (yours - line.point);
  const off = Math.abs(above) / Math.hypot(1, line.slope); // the distance in the picture
  if (off < 0.1) return "Your dot lies on its green line, where its policy holds both averages.";
  const side = above > 0 ? "above" : "below";
  return `Your dot lies ${number(off)} ${side} its green line: chance moves it in few rounds, and less in many.`;
}

function setUp() {
  PLAY.opponents.forEach(({ id, name }) => find("opponent").append(element("option", { value: id }, name)));
  find("opponent").value = "zd";
  const chis = PLAY.opponents.find(({ id }) => id === "zd").members.map(({ chi }) => chi);
  Object.assign(find("chi"), { min: chis[0], max: chis.at(-1), step: chis[1] - chis[0], value: 3 });
  find("opponent").addEventListener("change", begin);
  find("chi").addEventListener("input", begin);
  find("cooperate").addEventListener("click", () => play(0));
  find("defect").addEventListener("click", () => play(1));
  find("restart").addEventListener("click", begin);
  find("end").addEventListener("click", end);
  document.addEventListener("keydown", (event) => {
    const elsewhere = event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT";
    const act = { c: () => play(0), d: () => play(1), r: begin }[event.key.toLowerCase()];
    if (act && find("keys").checked && !elsewhere && !event.repeat) act();
  });
  begin();
}

setUp();
