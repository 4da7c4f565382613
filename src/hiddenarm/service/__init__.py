"""Roles as processes of an organisation: kits, provisioning, features, clients, health and metrics."""
