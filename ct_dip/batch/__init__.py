"""Methods on whole datasets: a table of record, tasks on Dask or in this process, and what they leave."""
