"""A preview of the dashboards, outside the package."""
