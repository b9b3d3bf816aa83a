"""What several environments share: grids, tables of questions, answers, word search, HTTP."""
