"""What tests of applications, and of Penstock itself, are made with."""
