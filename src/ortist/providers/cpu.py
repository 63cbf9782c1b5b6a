"""The CPU provider: in every wheel, the one that always works."""

from __future__ import annotations

from ortist.providers.spec import Provider

PROVIDER = Provider(name="cpu", ort_name="CPUExecutionProvider", extra="cpu", rank=0)
