"""Messages of the kernel that matter to a fabric: their texts, their severity, their meaning.

Data for both halves: the node half finds the messages, the console explains them. The texts that
are looked for are those of Linux (drivers/net/ethernet/mellanox/mlx5/core, drivers/pci/pcie,
drivers/gpu/drm/amd), of NVIDIA's kernel modules, and of NVIDIA's "Xid Errors" and "Fabric Manager
User Guide". A message that is not in the table never leaves the node.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, NamedTuple, Optional, Tuple

FATAL = "fatal"
ERROR = "error"
WARNING = "warning"
INFO = "info"
RECOVERED = "recovered"


class LogPattern(NamedTuple):
    """One kind of message.

    `name` is what is sent. `severity` is `fatal` (the device does not work until it is reset or its
    node is rebooted), `error`, `warning`, `info`, or `recovered` (which ends what was fatal, of
    `device` or, where the message names none, of all devices of `driver`). `needle` is a text that
    every such message contains; `expression` is then searched for. Its group `device` is a PCI
    address or an interface.
    """

    name: str
    driver: str
    severity: str
    needle: str
    expression: str
    meaning: str


_PCI = r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}(?:\.[0-7])?"
_MLX5 = rf"mlx5_core (?P<device>{_PCI})\b.*?"
_AMDGPU = rf"amdgpu (?P<device>{_PCI})\b.*?"
_BUS_ERROR = rf"(?P<device>{_PCI}): (?:AER: )?PCIe Bus Error: severity="


def _aer(word: str) -> str:
    """`AER: Corrected error received: ADDRESS`, and the bus error that names the device itself."""
    received = rf"AER: (?:Multiple )?{word} error(?: message)? received(?: from|:) "
    return rf"{received}(?P<agent>{_PCI})|{_BUS_ERROR}{word}"


_AER_FATAL = _aer(r"Uncorrect(?:ed|able) \(Fatal\)")
_AER_NON_FATAL = _aer(r"Uncorrect(?:ed|able) \(Non-Fatal\)")
_AER_CORRECTED = _aer(r"Correct(?:ed|able)")

# name driver severity: meaning, then its needle and its expression. Without driver: -.
_PATTERNS = rf"""
mlx5_health mlx5_core fatal: the NIC's firmware does not answer any more
    health compromised
    {_MLX5}device's health compromised
mlx5_fatal mlx5_core fatal: the driver takes the NIC out of service after a fatal error
    Fatal error
    {_MLX5}Fatal error \d+ detected
mlx5_recovery_failed mlx5_core fatal: the driver could not bring the NIC back into service
    health recovery
    {_MLX5}health recovery (?:failed|flow aborted)
mlx5_syndrome mlx5_core error: the NIC's firmware reports an internal error
    synd 0x
    {_MLX5}\bsynd 0x[0-9a-f]+: \S
mlx5_pci_error mlx5_core error: the driver stops the NIC because of an error of its PCIe link
    mlx5_pci_err_detected
    {_MLX5}mlx5_pci_err_detected
mlx5_command_timeout mlx5_core error: the NIC's firmware did not answer a command
    Will cause a leak
    {_MLX5}timeout\. Will cause a leak of a command resource
mlx5_loaded mlx5_core recovered: the driver has started the NIC
    firmware version:
    {_MLX5}\bfirmware version: \d
mlx5_module_error mlx5_core error: the NIC refuses the cable or the transceiver
    Port module event[error]
    {_MLX5}Port module event\[error\]
mlx5_unplugged mlx5_core warning: a cable was pulled out of the NIC
    Cable unplugged
    {_MLX5}Port module event: module \d+, Cable unplugged
mlx5_plugged mlx5_core info: a cable was put into the NIC
    Cable plugged
    {_MLX5}Port module event: module \d+, Cable plugged
mlx5_link_down mlx5_core warning: the link of the NIC went down
    Link down
    {_MLX5}: Link down
mlx5_link_up mlx5_core info: the link of the NIC came up
    Link up
    {_MLX5}: Link up
mlx5_power mlx5_core warning: the PCIe slot gives the NIC too little power
    power on the PCIe slot
    {_MLX5}insufficient power on the PCIe slot
mlx5_temperature mlx5_core warning: the NIC or its transceiver is too hot
    High temperature
    {_MLX5}High temperature
netdev_watchdog - error: a queue of an interface did not send for seconds: the driver resets it
    NETDEV WATCHDOG
    (?:(?P<device>{_PCI})\b.*)?NETDEV WATCHDOG: (?:(?P<agent>\S+) \()?.*timed out
xid nvidia warning: an error that the NVIDIA driver reports
    NVRM: Xid
    NVRM: Xid \((?:PCI:)?(?P<device>{_PCI})\): (?P<code>\d+)
gpu_off_the_bus nvidia fatal: the GPU does not answer on PCIe any more
    fallen off the bus
    NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?(?P<device>{_PCI}).*fallen off the bus
gpu_init_failed nvidia fatal: the driver could not start the GPU
    RmInitAdapter failed
    NVRM: GPU (?:at )?(?:PCI:)?(?P<device>{_PCI}).*RmInitAdapter failed
nvidia_loaded nvidia recovered: the NVIDIA driver was loaded
    NVRM: loading NVIDIA
    NVRM: loading NVIDIA
sxid nvidia warning: an error that an NVSwitch reports
    SXid (PCI:
    nvswitch\d+: SXid \(PCI:(?P<device>{_PCI})\): (?P<code>\d+), (?P<word>[\w-]+)
amdgpu_lost amdgpu fatal: the GPU does not answer on PCIe any more
    device lost from bus
    {_AMDGPU}device lost from bus
amdgpu_reset_failed amdgpu fatal: the driver could not reset the GPU
    GPU Recovery Failed
    {_AMDGPU}GPU Recovery Failed
amdgpu_reset amdgpu error: the driver resets the GPU
    GPU reset begin
    {_AMDGPU}GPU reset begin
amdgpu_recovered amdgpu recovered: the driver has reset the GPU
    succeeded
    {_AMDGPU}GPU reset\(\d+\) succeeded
aer_fatal pcie error: a PCIe error that took the link down
    (Fatal)
    {_AER_FATAL}
aer_non_fatal pcie error: a PCIe error that lost a transaction
    (Non-Fatal)
    {_AER_NON_FATAL}
aer_corrected pcie warning: a PCIe error that the link corrected; many of them slow the device down
    Correct
    {_AER_CORRECTED}
pcie_recovery_failed pcie error: the devices below a PCIe port were not recovered after an error
    device recovery failed
    (?P<device>{_PCI}): AER: device recovery failed
dpc pcie error: a PCIe port has cut off what is below it after an error
    containment event
    pcieport (?P<device>{_PCI}).*DPC: containment event
pcie_link_down pcie error: the PCIe link of a slot went down
    Link Down
    pcieport (?P<device>{_PCI}).*Slot\(\S+\): Link Down
pcie_downtrained pcie warning: a PCIe link is slower or narrower than the device supports
    available PCIe bandwidth, limited by
    (?P<device>{_PCI}): [\d.]+ Gb/s available PCIe bandwidth, limited by
pcie_retraining_failed pcie warning: a PCIe link could not be brought back to its speed
    retraining failed
    (?P<device>{_PCI}): retraining failed
"""


def _patterns() -> Iterator[LogPattern]:
    lines = _PATTERNS.strip().splitlines()
    for head, needle, expression in zip(lines[::3], lines[1::3], lines[2::3]):
        key, _, meaning = head.partition(": ")
        name, driver, severity = key.split()
        driver = driver.replace("-", "")
        yield LogPattern(name, driver, severity, needle.strip(), expression.strip(), meaning)


PATTERNS = tuple(_patterns())
"""The first that matches counts."""

XIDS: Dict[int, Tuple[str, str]] = {
    13: (WARNING, "an error of a program on the GPU"),
    31: (WARNING, "a program on the GPU used an address that is not mapped"),
    32: (ERROR, "commands for the GPU arrived damaged, often by PCIe"),
    38: (ERROR, "the driver's firmware reported an error"),
    43: (WARNING, "a program on the GPU was stopped; the GPU works"),
    45: (INFO, "a program on the GPU was ended"),
    46: (FATAL, "the GPU has stopped processing"),
    48: (ERROR, "an uncorrectable error of the GPU's memory: reset the GPU"),
    61: (ERROR, "an internal microcontroller of the GPU reported a warning"),
    62: (FATAL, "an internal microcontroller of the GPU has halted"),
    63: (WARNING, "a row of the GPU's memory is replaced at the next reset"),
    64: (ERROR, "a bad row of the GPU's memory could not be replaced"),
    68: (WARNING, "an error of the video engine"),
    69: (WARNING, "an error of a graphics engine class"),
    74: (ERROR, "an error of an NVLink"),
    79: (FATAL, "the GPU has fallen off the bus: it does not answer on PCIe any more"),
    92: (WARNING, "many corrected memory errors"),
    94: (WARNING, "a memory error that was contained: one program is lost"),
    95: (FATAL, "a memory error that was not contained: reset the GPU"),
    109: (ERROR, "a context switch timed out"),
    119: (FATAL, "the GPU's system processor does not answer: reset the GPU"),
    120: (FATAL, "an error of the GPU's system processor: reset the GPU"),
    121: (WARNING, "a corrected error of a C2C link"),
    122: (WARNING, "access to the GPU's configuration memory failed"),
    123: (WARNING, "the power management of the GPU failed"),
    137: (ERROR, "access to another GPU's memory over NVLink failed"),
    140: (ERROR, "an ECC error that was not recovered: reset the GPU"),
    143: (FATAL, "the GPU could not be started"),
    144: (ERROR, "an NVLink error in the secure access layer"),
    145: (ERROR, "an NVLink error in the remote layer"),
    146: (ERROR, "an NVLink error in the transaction layer"),
    147: (ERROR, "an NVLink error in the traversal layer"),
    148: (ERROR, "an NVLink error in the data link layer"),
    149: (ERROR, "an NVLink error in the network interface of the links"),
    150: (ERROR, "an NVLink error in the management engine"),
    154: (ERROR, "what the GPU needs to work again has changed"),
}
"""Xid -> severity and meaning. Others are warnings. NVLink: 74 up to Hopper, 144 to 150 later."""

_BY_NAME = {pattern.name: pattern for pattern in PATTERNS}
_NEEDS_RESET = "xid_154_reset"
_NEEDS_NOTHING = "xid_154_none"
_SXID_FATAL = "sxid_fatal_"

_NVLINK_TEXT = re.compile(
    r", (\w{1,40})\s+(Fatal|Nonfatal)\b.*?\bLink (-?\d{1,3})(?:\D{1,3}0x([0-9a-f]{1,8})\b)?"
)
"""Xid 144 to 150: unit, severity, link, and the first register, `intrinfo`."""
_NVLINK_NAME = re.compile(
    r"xid_(14[4-9]|150)_(fatal|nonfatal)_(\w+)_link(-?\d+)(?:_0x([0-9a-f]+))?"
)
_SUB_CODE_SHIFT, _SUB_CODE_MASK = 20, 0x3F
"""Where the sub-code is in `intrinfo`."""
_XID_74_TEXT = re.compile(r"\blink (\d{1,3}) ?\(((?:0x[0-9a-f]{1,8}(?:, )?){1,7})\)")
_XID_74_NAME = re.compile(r"xid_74_link(\d+)_([0-9a-f_]+)")


def xid_name(code: int, text: str) -> str:
    """`xid_79`; of Xid 154 whether the text says that the GPU needs nothing, or a reset; of errors
    of NVLinks also the link and what the text says of it, as `xid_149_fatal_NETIR_LINK_EVT_link1`
    with the first register, or `xid_74_link2_10000_0` with all registers."""
    nvlink = _NVLINK_TEXT.search(text) if 144 <= code <= 150 else None
    if nvlink is not None:
        unit, severity, link, register = nvlink.groups()
        tail = "_0x%s" % register if register else ""
        return "xid_%d_%s_%s_link%d%s" % (code, severity.lower(), unit, int(link), tail)
    older = _XID_74_TEXT.search(text) if code == 74 else None
    if older is not None:
        registers = (format(int(each, 16), "x") for each in older.group(2).split(", ") if each)
        return "xid_74_link%s_%s" % (older.group(1), "_".join(registers))
    if code == 154 and " to 0x0" in text:
        return _NEEDS_NOTHING
    needed = text.partition(" to ")[2]
    if code == 154 and ("Reset" in needed or "Reboot" in needed):
        return _NEEDS_RESET
    return f"xid_{code}"


def sxid_name(code: int, word: str) -> str:
    """`sxid_fatal_24007` or `sxid_20009`."""
    return f"{_SXID_FATAL if word == 'Fatal' else 'sxid_'}{code}"


def describe(name: str) -> LogPattern:
    """The pattern of a name that was sent, with the severity and meaning of its code.

    Of a name that is not in the table, from a newer probe, the meaning is empty.
    """
    if name == _NEEDS_NOTHING:
        return _of("xid", name, RECOVERED, "Xid 154: the GPU works again")
    if name == _NEEDS_RESET:
        return _of("xid", name, FATAL, "Xid 154: the GPU needs a reset, or its node a reboot")
    of_nvlink = _nvlink_pattern(name)
    if of_nvlink is not None:
        return of_nvlink
    family, _, code = name.rpartition("_")
    if family == "xid" and code.isdecimal():
        severity, meaning = XIDS.get(int(code), (WARNING, _BY_NAME["xid"].meaning))
        return _of("xid", name, severity, f"Xid {code}: {meaning}")
    if family in ("sxid", "sxid_fatal") and code.isdecimal():
        is_fatal = family == "sxid_fatal"
        meaning = "an NVSwitch reports a fatal error" if is_fatal else _BY_NAME["sxid"].meaning
        return _of("sxid", name, FATAL if is_fatal else WARNING, f"SXid {code}: {meaning}")
    return _BY_NAME.get(name) or LogPattern(name, "", WARNING, "", "", "")


def _nvlink_pattern(name: str) -> Optional[LogPattern]:
    """The pattern of an error of an NVLink whose name has the link; None for another name."""
    found = _NVLINK_NAME.match(name)
    if found is not None:
        code, severity, unit, link, register = found.groups()
        sub_code = ""
        if register:
            number = int(register, 16) >> _SUB_CODE_SHIFT & _SUB_CODE_MASK
            sub_code = ", sub-code %d (0x%s)" % (number, register)
        meaning = XIDS[int(code)][1]
        where = "link %s" % link if int(link) >= 0 else "no single link"
        text = "Xid %s %s: %s: %s, %s%s" % (
            code,
            severity.capitalize(),
            meaning,
            where,
            unit,
            sub_code,
        )
        return _of("xid", name, ERROR if severity == "fatal" else WARNING, text)
    found = _XID_74_NAME.match(name)
    if found is None:
        return None
    bits = [
        "register %d bit %d" % (number, bit)
        for number, register in enumerate(found.group(2).split("_"))
        for bit in range(32)
        if register and int(register, 16) >> bit & 1
    ]
    text = "Xid 74: %s: link %s%s" % (XIDS[74][1], found.group(1), "".join(", " + b for b in bits))
    return _of("xid", name, XIDS[74][0], text)


def _of(family: str, name: str, severity: str, meaning: str) -> LogPattern:
    return _BY_NAME[family]._replace(name=name, severity=severity, meaning=meaning)
