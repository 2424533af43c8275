"""What two_tower.py is made of: its data, its model."""
