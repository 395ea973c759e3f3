"""Labs: one store under test each, with a clock that the test owns. A fifth store brings a lab of its own."""
