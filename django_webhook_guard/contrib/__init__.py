"""What joins the package to others; each module needs the package that it is for."""
