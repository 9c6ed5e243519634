"""What runs beside the ranks."""
