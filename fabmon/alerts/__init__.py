"""Alerts: findings sent to Alertmanager and other receivers (docs/alerts.md)."""
