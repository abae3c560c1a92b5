"""What the workbench draws, as plain data of the widget protocol."""
