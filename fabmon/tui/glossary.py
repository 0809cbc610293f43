"""Every word on the screen, explained to someone who sees it for the first time at night."""

from __future__ import annotations

_TEXT = """
absent ·
    nobody can say: the device has no such counter, we may not read it, or it is not known yet.
    Never zero.
bookmark ◆
    a tick that somebody kept with `b`, and what they said of it; `{` and `}` go there.
burst
    fast samples of one port, 50 a second for 5 s, by its own node: `B` on the port's page.
busiest
    the ports with the most of the metric in use, now.
by chance ┊
    what a random hash would do: so many flows on so many links, and 19 times of 20 the busiest has
    at most so many times the mean. `┊` in the bars is where that is.
chosen ◉
    one of the links, hosts or switches of the finding that the cursor was on last in a list of
    findings, and on the strip the time it lasts; esc lets go. Where a cell is too small for two
    marks, the other one is reversed.
CNP
    congestion notification packet: a receiver of ECN-marked RDMA asks the sender to slow down;
    here, those handled.
collision
    more large flows than its share were hashed onto one link of an ECMP group, while others
    have room.
comm
    share of a step in which the job communicates; a range where samples are too coarse for one
    number.
compute-bound
    less than a fifth of the step is communication: a faster network would change little.
confidence
    how sure a finding is, from what was seen: 100 % is a fact, less is a judgement.
config
    what a file or fabmon.toml says of the cabling; it is believed before all others.
connecting
    on the way to the node, nothing from it yet.
counter
    a number that a device only ever counts up; the screen shows its rate.
CoV
    coefficient of variation: standard deviation over mean of the samples in communication; 0 is
    perfectly steady.
direction
    tx leaves the port named, rx enters it.
down ✖
    the port has no carrier. In the header: cables that are down, told once.
downlink
    a switch's port towards hosts, or a spine's towards leaves: dn1, dn2 …
drops
    packets thrown away per second, for lack of room or by rule.
ECMP
    equal-cost multi-path: a switch spreads flows over several links by a hash of their
    addresses.
ECN
    explicit congestion notification: a switch marks packets when its queue grows; here, marked
    ones received per second.
END ■
    the last tick of a recording; backtick waits there for more.
engine
    a Prometheus, or another store of metrics, that fabmon reads instead of the nodes.
errors
    packets or symbols damaged per second: cable, optics or connector.
event
    anything with a time on the strip: a finding opened, a node lost.
evidence
    the numbers that a finding was judged by.
expected
    what a step should move, by what was told of the job.
failed
    the node was never reached; the reason says why. It is tried again.
finding
    a condition with a subject, a cause, numbers, a start and advice. One cause, one finding.
flagged ▲
    a port with an open finding, where it is up and sends data.
gap
    no sample of that time: `·` in the strips and charts, never joined over.
GB/s
    thousand million bytes per second: a Gb/s figure divided by eight.
Gb/s
    thousand million bits per second, decimal, one direction.
group
    the leaf or rack that a node is shown under.
holds
    tells its neighbour to stop sending: what waits for it is listed hop by hop below it.
host
    a machine with GPUs; its ports are rails.
idle
    less than half a percent of the scale: a blank cell.
last seen △
    for so long the condition of a finding has not held. It stays open for a while, since what
    pauses with the job comes back with it; its sentence and numbers are of then.
leaf
    the switch that hosts are cabled to.
line rate
    what the port can carry, one direction. 80 to 90 % of it is what networks deliver in
    practice.
LIVE
    the screen follows the last tick; the time is that tick's, UTC.
LLDP
    what the two ends of a cable tell each other: the surest way to know who is where.
lost
    the node sent and fell silent; the connection is gone and is being made again. Of bandwidth:
    1 - mean/max of an ECMP group.
matrix
    the switches of one tier by those above: of each pair, left what goes up, right what comes
    down, of the busiest of its links. `?` is where nobody says which switch it is.
max/mean
    the busiest uplink over the average one: 1 is perfectly even.
metric
    what colours the cells: util, tx, rx, pause, pause-rx, pause-tx (and those of each priority that
    PFC is used on, as in pause-rx-p3), xoff, stall, ecn, cnp-sent, cnp, errors or drops.
min
    minutes, of time; UTC everywhere.
miscabled
    two sources name different far ends for a port: the cable is in the wrong place, or the plan.
neighbour MAC
    the address seen at the other end of a cable; it tells who that is when both are watched.
network-bound
    more than half of the step is communication.
no tick for
    nothing has come for so long: what is drawn is as old.
node
    a machine watched: a host or a switch.
NUMA
    the half of the host that a card hangs on.
NVLink
    the links between the GPUs of a node. g0, g1 … are GPUs, with all their NVLinks together, in
    GB/s, one direction.
p5 to p95
    nine samples of ten lie between: the 5th and the 95th percentile.
pause
    share of time that a port was told to hold (paused, rx), or told its neighbour to (pausing,
    tx).
PAUSED ❚❚
    the screen shows that time, so far behind now; … while the minutes before it are worked
    through. Everything still works; watching and recording go on.
peer
    the port at the other end of the cable.
PFC
    priority flow control: pause for one class of traffic. It spreads backwards from a slow
    receiver.
port
    one end of a cable, called node/device.
probe
    the small program on the node that reads its counters; it leaves nothing behind.
probe CPU
    the share of one core that the probe takes on its node.
QP
    queue pair: one end of an RDMA connection. `may be on it`: which link of a group it takes is a
    secret of the switch's hash.
queued
    waiting for its turn to be connected to.
r
    correlation of what a NIC sends with what a link carries, to 1: a hint at who is on it.
rail
    the NIC of the same index in every host: r0, r1 … Collectives run along rails.
RDMA only
    the port's bytes are those of RDMA alone: the wire carries more.
REC ●
    what is watched is recorded, and kept for so long: as far as that one can go back. ✖ and why,
    when it is not.
REPLAY ▶
    a recording plays, so many times as fast as it was, so far from its start; ▶ alone: what was,
    while now goes on.
resolution
    the shortest time that a burst can tell apart: that of the reading, or the counter's own.
rhythm
    the steps of training, seen in byte counters alone. Hosts whose traffic moves together are one
    job, called by its first host.
rx
    received: into the port named.
saturated ≥
    a counter stuck at its maximum, as old InfiniBand ones do: the true value is unknown.
scale
    to line rate: the top of a chart is that, and stays. To greatest seen: no line rate is known,
    the top is the most that was seen, and moves.
spine
    a switch that joins the leaves.
sport
    UDP source port of an RDMA connection, from its two QP numbers: what hashes tell it apart by.
stale ▒
    the last sample is older than three ticks: the last colour, dimmed, with its age in the row.
    `?` without colours.
stall
    share of time that a port had data and might not send: InfiniBand's xmit_wait over the line
    rate; an estimate.
starting
    the probe is on its way into the node's python3.
step
    one iteration of training, and how long it takes; in brackets what it was before it changed.
sure
    so many % sure: the confidence in a finding.
switch
    a node that forwards for others.
then
    findings told when it was recorded are those of then; others are worked out today.
tick
    one round of samples, one per second unless told otherwise.
tx
    transmitted: out of the port named.
unrated ?
    traffic, but no line rate is known: name it in the hosts file, as in speed=400G.
uplink
    a switch's port towards the spines, one of an ECMP group: up1, up2 …
util
    bits per second over line rate, the greater of tx and rx.
victim
    what suffers under a finding without being its cause.
waterfall
    the links of a finding over the last minutes, or with `-` over hours and days of what is
    recorded: a row a link, a column a stretch of time, the busiest second of each. `w` on the
    finding's page.
without RDMA
    the port's bytes are those of the kernel's stack, which RDMA bypasses: the wire carries more.
XOFF
    pauses begun or ended per second, PFC and 802.3x, both ways.
"""


def _entries(text: str) -> dict[str, str]:
    """Word -> explanation; the words stand at the margin."""
    entries: dict[str, str] = {}
    word = ""
    for line in text.strip().splitlines():
        if line.startswith(" "):
            entries[word] = f"{entries[word]} {line.strip()}".strip()
        else:
            word = line
            entries[word] = ""
    return entries


GLOSSARY = _entries(_TEXT)
"""Word -> explanation, in the order of the alphabet."""
