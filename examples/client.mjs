// A client of a federation's HTTP in Node: asks for an action, says how good it was. See docs/http.md.
//   node client.mjs kits/actor http://127.0.0.1:8411 kits/rewarder http://127.0.0.1:8412 "user 17"
import { readFileSync } from "node:fs";
import { randomUUID } from "node:crypto";

async function post(kit, url, path, body) {
  const token = readFileSync(`${kit}/http.token`, "utf8").trim();
  const headers = { Authorization: `Bearer ${token}`, "Content-Type": "application/json" };
  const response = await fetch(url + path, { method: "POST", headers, body: JSON.stringify(body) });
  const answer = await response.json();
  if (!response.ok) throw new Error(`${answer.code}: ${answer.detail}`);
  return answer;
}

const [actorKit, actorUrl, rewarderKit, rewarderUrl, key] = process.argv.slice(2);
const ranked = await post(actorKit, actorUrl, "/rank", { eventId: randomUUID(), key });
const clicked = 1; // shown to the user, who clicks
const path = `/events/${encodeURIComponent(ranked.eventId)}/reward`;
const rewarded = await post(rewarderKit, rewarderUrl, path, { value: clicked, decisionId: ranked.decisionId });
console.log(JSON.stringify({ action: ranked.rewardActionId, version: rewarded.version }));
