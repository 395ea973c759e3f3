"""The dashboard: pages that are rendered here, pictures that are drawn here, and one small script."""
