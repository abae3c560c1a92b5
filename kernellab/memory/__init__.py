"""What worked and what failed, remembered in LanceDB, found again by what an operator computes."""
