"""HTTP: endpoints, access control, connections, the dashboard."""
