"""The dashboard: pages that are rendered here, pictures that are drawn here, and one small script."""

from dibs.http.dashboard.site import dashboard

__all__ = ["dashboard"]
