"""`fabmon report`: a recording as one page that needs nothing but a browser."""
