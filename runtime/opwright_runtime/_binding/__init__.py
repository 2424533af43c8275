"""What classes of ops are made of: from arguments to outputs, eagerly and in graphs."""
