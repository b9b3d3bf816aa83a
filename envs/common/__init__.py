"""Common parts of the environments: grids, tables of questions, answers, word search, HTTP."""
