"""What commands print: the one look of our tables, and the views made of them."""
