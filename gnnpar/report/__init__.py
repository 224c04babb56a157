"""What finished runs, or runs that were cut off, have to tell: one page for one or several of them."""
