"""What operators do, over HTTP with Django REST framework."""
