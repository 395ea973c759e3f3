"""The store contract as tests, arranged by promise. Run it on a store of your own:

    pytest --pyargs dibs.testing.contract --dibs-lab yourpackage.testing:YourLab

Nothing here sleeps: time is the lab's clock. Every test begins with an empty store.
"""
