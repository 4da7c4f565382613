#!/bin/bash
# A travel site with a hotel and an airline, from two CSV files to a learned model, with provision, serve and curl alone.
#
#   run.sh FOLDER [FEDERATION_FILE [VISITS]]
#
# Everything is written to FOLDER, which must be new. All roles run on this machine, the hotel's three in one process.
set -euo pipefail
folder=$1 file=${2:-$(dirname "$0")/federation.toml} visits=${3:-160}
mkdir "$folder" && cp "$file" "$folder/federation.toml" && cd "$folder"
SECONDS=0
trap 'kill $(jobs -p) 2> /dev/null || true; wait' EXIT

# Each organisation's own table. Guests who like a spa and who fly south want the beach, and so on: nobody has both.
hiddenarm provision federation.toml --out kits > /dev/null
awk 'BEGIN { print "key,spa,one"; for (i = 0; i < 100; i++) printf "guest %d,%.2f,0.3\n", i, (int(i / 2) % 2 ? 0.6 : -0.6) }' > hotel.csv
awk 'BEGIN { print "key,south"; for (i = 0; i < 100; i++) printf "guest %d,%.2f\n", i, (i % 2 ? 0.6 : -0.6) }' > airline.csv
install -m 600 hotel.csv kits/hotel/features.csv
install -m 600 airline.csv kits/airline/features.csv

# The roles. In practice each party and the dealer is another organisation, on its own host.
hiddenarm serve kits/dealer 2> dealer.log &
hiddenarm serve kits/airline 2> airline.log &
hiddenarm serve kits/hotel kits/actor kits/rewarder < /dev/null 2> hotel.log &

mapfile -t addresses < <(sed -n 's/^http = "\(.*\)"$/\1/p' federation.toml)
until curl -fs "http://${addresses[0]}/readyz" > /dev/null; do
  if [ "$(jobs -rp | wc -l)" -lt 3 ]; then cat ./*.log >&2; exit 1; fi
  sleep 0.2
done

ask() {  # ROLE ADDRESS PATH JSON
  curl -fsS "http://$2$3" -H "Authorization: Bearer $(cat "kits/$1/http.token")" -H 'Content-Type: application/json' -d "$4"
}

names=(mountains lake city beach)  # what a guest wants, by spa and south
for ((visit = 0; visit < visits; visit++)); do
  guest=$((RANDOM % 100))
  answer=$(ask actor "${addresses[0]}" /rank "{\"eventId\": \"visit-$visit\", \"key\": \"guest $guest\"}")
  if ((visit == 0)); then echo "first private decision after $SECONDS s: $answer"; fi
  shown=$(sed 's/.*"rewardActionId": *"\([a-z]*\)".*/\1/' <<< "$answer")
  wanted=${names[$((guest / 2 % 2 * 2 + guest % 2))]}
  booked=$([ "$shown" = "$wanted" ] && echo 1 || echo 0)
  ask rewarder "${addresses[1]}" "/events/visit-$visit/reward" "{\"value\": $booked}" > /dev/null
  echo "$booked" >> booked
done

echo "booked among the first 40 visits: $(head -40 booked | grep -c 1), among the last 40: $(tail -40 booked | grep -c 1), after $SECONDS s"
