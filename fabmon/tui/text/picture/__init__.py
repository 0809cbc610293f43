"""Pictures of findings: one module per kind of subject, chosen by the cause's declaration."""
