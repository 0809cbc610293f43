"""What makes the packages that people install: zipapp, Debian package, image, pages."""
