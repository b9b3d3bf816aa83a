"""The page: its template, its style, and the parts of its one script in the order of `page.SCRIPTS`."""
