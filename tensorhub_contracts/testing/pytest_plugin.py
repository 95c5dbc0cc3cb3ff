"""What pytest loads by the entry point `tensorhub-contracts`: assertions of the kit explain themselves as a test's own do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tensorhub_contracts.testing.conformance")
