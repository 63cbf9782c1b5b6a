"""Model families: one module per family, each exporting one `FAMILY`.

The folder is the registry: `registry.families()` finds every module here.
"""
