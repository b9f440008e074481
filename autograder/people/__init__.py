"""What people read of a graded class: feedback pages, the class report, similar answers, CSV exports."""
