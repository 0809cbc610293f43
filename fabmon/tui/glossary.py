"""The glossary of help: every word and mark on the screen, with its meaning."""

from __future__ import annotations

from fabmon.analysis.causes import CAUSES
from fabmon.tui.metrics import HEAT_METRICS

_TEXT = """
absent ·
    no value: the device has no such counter, permission is missing, or nothing has been read yet.
    Never zero.
active
    share of the time in which a link, rail or job had traffic, over hours: more than 30 % of its
    95th percentile.
ALERTS ✖
    a receiver of alerts does not take them; they are sent when it does.
being read …
    a value of the past that is recorded, and is being read from the recording.
bookmark ◆
    a tick that someone marked with `b`, and its text; `{` and `}` go there.
burst
    fast samples of one port by its own node, 50 per second for 5 s: `B` on the page of the port.
busbw
    bus bandwidth as nccl-tests defines it: about what all NICs of a node send together. The highest
    of the last minute, the mean over the nodes of a job.
busiest
    the ports with the highest value of the current metric.
by chance ┊
    the result of a random hash: with this many flows on this many links, the busiest link has at
    most this many times the mean load in 19 of 20 cases. `┊` in the bars marks that load.
capacity below to above
    line rates of the ports below a switch over those of its uplinks: 2 where only half of what the
    ports can send fits on the uplinks.
chance
    how probable it is that random hashing uses so few links.
CNP
    congestion notification packet: the receiver of ECN-marked RDMA asks the sender to slow down;
    the metric counts those handled.
collision
    more large flows than its share are on one link of an ECMP group, by a hash or by forwarding
    tables, while other links have room.
comm
    communication: the share of a step in which the job communicates; a range where the samples are
    too coarse for one number.
compute-bound
    less than a fifth of the step is communication: a faster network would change little.
confidence
    how certain a finding is, from what was observed: 100 % is a fact, less is an inference.
config
    the hosts file or fabmon.toml gives this cable; it overrides all other sources.
connecting
    the connection to the node is being opened; nothing has been received.
counter
    a number that a device only counts up; the screen shows its rate.
CoV
    coefficient of variation: standard deviation divided by the mean of the samples in
    communication; 0 is perfectly steady.
DAMAGED
    so much of the recording that is replayed cannot be read: `fabmon verify` lists where. What is
    missing is a gap.
data 14 s old
    the samples that a server has of half of the nodes are older than this: it scrapes at intervals.
DELAYED
    the newest tick on the screen is this old: fabmon cannot keep up, or no tick arrives. All that
    arrives is recorded.
direction
    tx leaves the named port, rx enters it.
down ✖
    the port has no carrier. In the header: cables that are down, each counted once.
downlink
    a port of a switch towards hosts, or of a spine towards leaves: dn1, dn2 …
drops
    packets dropped per second, for lack of buffer or by a rule.
E-ECMP
    enhanced ECMP: the switch's hash includes the queue pair of RoCE packets, so that the flows of
    one pair of NICs spread over several links.
ECMP
    equal-cost multi-path: a switch distributes flows over several links by a hash of their
    addresses.
ECN
    explicit congestion notification: a switch marks packets when its queue grows; the metric counts
    marked packets received per second.
effective flows
    the number of equal flows that would spread over a group as unevenly as the real ones do; far
    fewer than the flows means that the hash sees few differences.
END ■
    the last tick of a recording; backtick waits there for more.
errors
    damaged packets or symbols per second: cable, optics or connector.
event
    anything with a time on the timeline: a finding that opened, a node that was lost.
evidence
    the numbers that a finding was decided by.
expected
    the bytes a step should move, from the given model and parallelism.
failed
    the node was never reached; the reason is shown. fabmon tries again.
finding
    a condition with a subject, a cause, numbers, a start and advice. One cause, one finding.
findings, several ▸
    three or more findings of one cause at one node, leaf or job are one line with their number;
    enter or → lists them, ← folds them again.
flagged ▲
    the port that a finding names as its cause; it is up and its samples are current.
frontend
    a host's port that is no rail, because it has no RDMA or carries the default route: f0, f1 …
gap
    no samples of that time: `·` in timelines and charts, never interpolated.
GB/s
    10⁹ bytes per second: a figure in Gb/s divided by eight.
Gb/s
    10⁹ bits per second, decimal, one direction.
group
    the leaf or rack that a node is listed under.
group mean
    mean utilisation of the links of a group, over the last seconds.
highest util
    highest utilisation of a finding's link since its evidence began.
host
    a machine with GPUs; its ports are rails, storage and frontend ports.
idle
    below 0.5 % of the scale: `0` in the heatmap. A blank cell has no port.
idle links
    links of a group that carry less than 2 % of line rate while another one is full.
imbalance
    1 - mean/max of the links of an ECMP group. Random hashing is always uneven: what the job pays
    is the lost bandwidth.
iterations
    the steps of training jobs, measured from byte counters alone. Hosts whose traffic moves
    together are one job, named as Slurm does, or else after its first host.
job
    a job of Slurm, asked every 30 s, or known by the processes that use RDMA. Where no scheduler is
    known: the hosts whose traffic moves together.
last seen △
    the condition of a finding has not been true for this long; it is not counted with ▲. It stays
    open for a while, because a condition that stops with the job returns with it; its numbers are
    of that time. Most conditions are of the last 10 s, so the trouble itself may have ended up to
    10 s earlier.
kernel
    a message of the node's kernel about a NIC, GPU or PCIe; ✖: the device does not work any more.
leaf
    the switch that hosts are cabled to.
line rate
    what the port can carry in one direction. A full link carries 93 to 99 % of it; collectives
    usually achieve about 80 % over a step.
link
    a cable between two nodes of the fabric: of a NIC to its leaf, or between switches. The header
    counts each once, of which one end is watched at least; the fluctuation counts its directions.
link subnet
    the /31 or /30 in which ports of two watched nodes have addresses: a cable connects them.
link util
    mean utilisation of a finding's link, over the last seconds.
LIVE
    the screen follows the newest tick; the time shown is that of the tick, in UTC. CONNECTING: no
    node sends data yet; NO NODE UP: none does, and all have failed or are lost.
LLDP
    link layer discovery: both ends of a cable announce themselves; the most reliable source of
    cabling.
late by
    by how much, at the median, a host begins its exchanges later than the others of its job.
lost
    the node sent and fell silent; fabmon is reconnecting. Of bandwidth: 1 - what the slowed ports
    send ÷ what they could (the smaller of their line rate and a fair share of the group); not shown
    where it is not measured.
lost bandwidth
    1 - what the slowed ports send over what they could: their line rate, or a fair share of the
    group.
matrix
    the switches of one tier by those of the tier above. The left half of a cell is the traffic up,
    the right half the traffic down, on the busiest link of the pair. `?`: the switch above is not
    known.
map
    every leaf as a cell, its busiest port, beside a heatmap that has more rows than the screen.
mean of
    the seconds of which the loads of a finding's link or receiver are means.
max/mean
    the load of the busiest uplink divided by the mean: 1 is perfectly even.
MFU
    model FLOPs utilisation: the operations of a step, by params, seq_len and global_batch of
    --model, as a share of what the GPUs could do in that time (peak_tflops).
metric
    what the colour of the cells shows: {metrics}. PFC pauses are also shown per priority, as in
    pause-rx-p3.
min
    minutes of time; all times are UTC.
miscabled
    two sources name different far ends of a port: the cable is in the wrong place, or the plan is
    wrong.
neighbour MAC
    the MAC address seen at the other end of a cable; it identifies the peer when both are watched.
network-bound
    more than half of the step is communication, the rails at their limit. Where they have room,
    computing that overlaps with communication may pace it, and nothing is reported.
NIC
    network adapter of a host; its role, with the reason, is on the node's page.
no tick for
    nothing has been received for this long: what is shown is this old.
node
    a machine that is watched: a host or a switch.
NUMA
    a part of the host with its own cores, memory and PCIe slots: a card is attached to one of
    them. Hosts have 1 to 8 of these NUMA nodes, or more.
NVLink
    the links between the GPUs of a node. g0, g1 … are GPUs: the sum of their NVLinks, in GB/s, one
    direction.
p5 to p95
    nine of ten samples are in this range: the 5th to the 95th percentile.
pause
    share of time that a port was paused by its neighbour (rx), or paused its neighbour (tx).
PAUSED ❚❚
    the screen shows that time; the number is how far it is behind now, … while the minutes before
    it are analysed. All keys work; collection and recording continue.
peer
    the port at the other end of the cable.
PFC
    priority flow control: pause for one traffic class. It spreads backwards from a slow receiver.
port
    one end of a cable, shown as `gpu006 r3` or `leaf2 up5`; its id is node/device.
probe
    the small program on the node that reads its counters; it leaves nothing behind.
probe CPU
    the share of one core that the probe uses on its node.
Prometheus
    a Prometheus-compatible server that fabmon reads instead of the nodes.
QP
    queue pair: one end of an RDMA connection. `may be on it`: the switch's hash decides which link
    of the group it takes, and the hash is not known.
queued
    waiting for its turn to connect.
r
    correlation between what a NIC sends and what a link carries, at most 1: a hint at the senders
    on the link.
rail
    the NIC of the same index in every host: r0, r1 … Collectives run along rails.
RDMA only
    the bytes of the port are those of RDMA alone: the wire carries more.
REC ●
    everything is recorded; the time is how far back you can go. ✖ and the reason when it is not.
recorded
    a finding as it was written to the recording; other findings are computed now from the recorded
    counters.
REPLAY ▶
    a recording plays, at this speed, this far from its start. ▶ alone: the past plays, while
    collection continues.
resolution
    the shortest time that a burst can resolve: the interval of its samples, or of the counter.
rx
    received: into the named port.
sampled flows
    packets that the switch itself sampled (sFlow), by flow. ± is the error of the rate at 95 %
    confidence: it falls with the number of samples.
saturated ≥
    a counter stuck at its maximum, as old InfiniBand counters are: the true value is unknown.
routing
    how a switch selects the link for a flow: hashed (ECMP), static (forwarding tables of
    InfiniBand), adaptive (by packet, also spraying), or not known.
scale
    to line rate: the top of a chart is the line rate and stays. To greatest seen: the line rate is
    not known, the top is the largest value so far.
selected ◉
    a link, host or switch of the selected finding, and the time of that finding on the timeline.
    The cursor in a list of findings selects it; esc clears it. In cells too small for two marks,
    the other mark is reversed.
slowed ports
    ports whose traffic a full link slows, of all that send or receive over its group.
spine
    a switch that joins the leaves.
sport
    UDP source port of an RDMA connection, derived from its two QP numbers: the entropy for hashes.
stale ▒
    the last sample is older than three ticks: the last colour, dimmed, with its age in the row.
    `?` without colours.
stall
    share of time that a port had data but no credit to send: InfiniBand xmit_wait, estimated.
starting
    the probe is being sent to the python3 of the node.
step
    one iteration of training, and its duration; in brackets the duration before it changed.
    `?`: it may be several shorter ones.
storage
    a host's port with RDMA that is not like the rails: s0, s1 …
sure
    the confidence of a finding in %.
switch
    a node that forwards traffic of others.
tick
    one round of samples, one per second by default.
time stalled
    share of time in which a NIC waits for its PCIe link.
time without credits
    share of time in which an InfiniBand port had data to send and no credits of its peer.
timeline
    the last minutes below the heatmap: the busiest link, findings and events. In a taller terminal
    also a row for each of some links: `▲` those of findings, `△` of findings that ended in it, then
    the busiest of each leaf.
tx
    transmitted: out of the named port.
unrated ?
    traffic, but the line rate is not known: set it in the hosts file, as in speed=400G.
unused bandwidth
    1 - mean/max of the rails of a host: what the others could carry beside the busiest one.
uplink
    a port of a switch towards the spines, one of an ECMP group: up1, up2 …
util
    bits per second divided by the line rate, the greater of tx and rx.
victim
    also affected by a finding, without being its cause.
waterfall
    the links of a finding over the last minutes, or with `-` over hours and days of the recording:
    one row per link, one column per span of time, the busiest second of each. `w` on the page of
    the finding.
window
    the time that every value of the screen is over, which the header names: the highest or the mean
    of 10 s, the mean of a minute or of an iteration, or this tick. `p` goes to the next.
without RDMA
    the bytes of the port are those of the kernel's network stack, which RDMA bypasses: the wire
    carries more.
PCIe
    traffic over the PCIe link of a GPU (as it counts it) or a NIC (what it sends or receives), the
    busier direction, as a share of what the link carries; pcie-stall is the share of time in which
    the PCIe of a NIC stalled.
non-RDMA
    the share of a RoCE port's traffic that goes through the kernel's network stack: storage,
    management or NCCL over sockets beside the training traffic.
XOFF
    pauses begun or ended per second, PFC and 802.3x, both directions.
"""


def _entries(text: str) -> dict[str, str]:
    """Word -> explanation, from lines of which only those with a word are not indented."""
    entries: dict[str, str] = {}
    word = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            entries[word] = f"{entries[word]} {line.strip()}".strip()
        else:
            word = line
            entries[word] = ""
    names = ", ".join(each.name for each in HEAT_METRICS)
    entries["metric"] = entries["metric"].format(metrics=names)
    return entries


_WORDS = (
    _entries(_TEXT)
    | {cause.title: f"finding: {cause.meaning}." for cause in CAUSES.values()}
    | {
        other.title: f"finding: as {cause.title}, {other.where}."
        for cause in CAUSES.values()
        if (other := cause.other_title)
    }
)
GLOSSARY = dict(sorted(_WORDS.items(), key=lambda entry: entry[0].lower()))
"""Word -> explanation, in alphabetical order; the titles of causes with their meanings."""
