"""Execution providers: one module per provider, each exporting one `PROVIDER`.

The folder is the registry: `registry.providers()` finds every module here.
"""
