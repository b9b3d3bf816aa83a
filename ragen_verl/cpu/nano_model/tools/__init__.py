"""The weights of the nano model that calls tools."""
