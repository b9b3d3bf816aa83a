"""The package that Repair breaks: plain functions over text, numbers, days and lists, and the cases that judge them."""
